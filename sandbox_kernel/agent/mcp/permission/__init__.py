"""Asks the user over MCP whether programs may reach a domain that they lacked, and changes the policy by the answer.

Called by the toolbox and the server. ``domain_rights.py`` holds the rights; read it first. ``asking.py`` asks.
"""
