"""Programs that run INSIDE a jail. Host code never imports them, and they never import host code.

Inside, this folder is the package ``sandbox_guest``; its modules import each other relatively. Each folder runs under
one Python and may import only what stands here (``tests/test_house.py`` checks it). Read ``gate/gate.py`` first.

================================  ==================================  ==============================================
folder                            runs under                          may import
================================  ==================================  ==============================================
``gate``                          the user's Python, 3.8 or later     the standard library, and of it no ``json``,
                                                                      ``typing`` or ``signal``: each start waits
``session``, ``scripts``,         the user's Python, 3.8 or later     the standard library
``node/*.py``, ``functions``
``python``                        the user's Python, 3.8 or later     IPython and traitlets; debugpy in the debugger;
                                                                      no package that the user may lack
``python/interactive``            the same, and ipykernel of a        IPython
                                  wrapped kernel (``in_ipykernel``)
``wasm``                          the host's Python                   wasmtime; pip in ``pip_in_jail``
``wasm/inside/*.py``,             CPython inside WebAssembly, as      the standard library; no module imports them:
``functions/calling``             source that is sent                 they are read as text
``node/*.js``                     Node.js                             its own modules
``wasm/inside/*.js``,             QuickJS inside WebAssembly          nothing
``functions/host_object.js``
``root``                          the host's Python                   the standard library; runs outside of a jail,
                                                                      to prepare bubblewrap or to join a jail
``python/interactive/*.js``       a frame of the user's browser       what stands in the frame
================================  ==================================  ==============================================
"""
