"""A question of a running cell to its user: one of a program's, with the number by which the worker knows it."""

from __future__ import annotations

from sandbox_kernel.jail.input_prompts import MAX_INPUT, takes_prompt_alone
from sandbox_kernel.jail.input_prompts import InputPrompt as _Asking
from sandbox_kernel.model import OnInput
from sandbox_kernel.session.worker.messages import Question

__all__ = ["MAX_INPUT", "CellPrompt", "OnInput", "takes_prompt_alone"]


class CellPrompt(_Asking):
    """See ``jail/input_prompts.py``."""

    def __init__(self, question: Question, ask: OnInput) -> None:
        self.number = question.question
        super().__init__(question.prompt, question.password, ask)
