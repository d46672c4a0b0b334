"""The process backend: runs every request in a jail of its own, behind walls that the operating system enforces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.base import ALONE, BackendCapabilities, JailBackend, JailRun, RunContext
from sandbox_kernel.backends.checks import check_command, check_files_fit, check_request, given_files, host_trouble
from sandbox_kernel.backends.crowd import shared_crowd
from sandbox_kernel.backends.outcome import NetworkSigns, run_result
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.accounting.gpu_meter import check_gpu_limit
from sandbox_kernel.jail.enforcer import get_enforcer
from sandbox_kernel.jail.guest_programs import guest_folder
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.pool import SPARES, Pool
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.run_job import OWN_PROCESSES, Job, SpareGone
from sandbox_kernel.jail.spawner import bury
from sandbox_kernel.jail.streams import ListenerFailed, guarded
from sandbox_kernel.jail.template import NoLayer
from sandbox_kernel.jail.walls import Places, Walls, Warm, has_own_disk, sizes, with_gpu
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.languages.recipe import (
    MODULES,
    ProgramPlan,
    Recipe,
    StepBuilder,
    Toolchains,
    availability,
    recipe_of,
    rlimits,
    search_path,
)
from sandbox_kernel.limits import MIB, check_whole, quoted
from sandbox_kernel.model import ExecRequest, ExecResult, Language, notes
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.given_grants import GivenGrants

if TYPE_CHECKING:
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy


@dataclass(frozen=True, kw_only=True)
class ProcessConfig(Toolchains):
    """Which programs run which language, and what is kept ready between runs; see ``Toolchains`` for the programs.

    Args:
        pool_size: How many spares to keep for each kind of request; 0 makes each jail on request.
        templates: Whether jails of a kind that is requested again are forked from a template: fast, but they share its
            address layout and hash seed. With False and ``pool_size=0``, nothing is kept between runs.
        preload: Python modules that spares have imported already.
        cache_dir: The folder for compiled programs; None for a private one in the user's cache, "" for no cache.
        runners: How many processes of ours run programs when many run at once (``backends/crowd.py``); None for one for
            two cores, where there are at least four, and 0 for none.
    """

    pool_size: int = SPARES
    templates: bool = True
    preload: tuple[str, ...] = ()
    cache_dir: str | None = None
    runners: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, given in (("pool_size", self.pool_size), ("runners", 0 if self.runners is None else self.runners)):
            check_whole(name, given, 0)


@functools.lru_cache(maxsize=8)
def shared_pool(size: int) -> Pool:
    """Return the pool of this size, shared by all backends of this process: a spare serves any request of its walls."""
    return Pool(size)


@dataclass(frozen=True)
class ProcessSetup:
    """Configuration, policy and enforcer of a process backend, for a worker of Dask or a runner to make it there."""

    config: ProcessConfig
    policy: SandboxPolicy
    enforcer: str | None

    def backend(self) -> ProcessBackend:
        """Return a process backend for the machine and the process that this is called in."""
        return ProcessBackend(self.config, enforcer=self.enforcer, policy=self.policy)


class ProcessBackend(JailBackend):
    """Runs programs as jailed processes of the host.

    Args:
        config: Interpreters and compilers, size of the pool, caches; None for the defaults.
        enforcer: The tool that builds the walls: ``auto`` (the best of this host), ``bubblewrap`` or ``landlock``.
            None runs programs without walls.
        policy: What programs may read, write, reach and start; None for the preset ``standard``.
        proxy: Function that makes the egress proxy for a ``FetchPolicy``; None for ``EgressProxy``.
        grants: The opened paths of the policy, where another backend has them already; None opens them.
    """

    name = "process"

    def __init__(
        self,
        config: ProcessConfig | None = None,
        enforcer: str | None = "auto",
        policy: SandboxPolicy | None = None,
        *,
        proxy: Callable[[FetchPolicy], EgressProxy] | None = None,
        grants: GivenGrants | None = None,
    ) -> None:
        if config is not None and not isinstance(config, ProcessConfig):
            raise InvalidRequest(f"config must be a ProcessConfig(...), got {quoted(config)}")
        super().__init__(policy, get_enforcer(enforcer) if enforcer is not None else None, proxy, grants)
        self._enforcer_name = self.enforcer.name if self.enforcer is not None else None
        self.config = config or ProcessConfig()
        #: ``process+sandbox`` behind an enforcer, ``process`` without one.
        self.isolation_class = "process+sandbox" if self.enforcer is not None else "process"
        self._pool = shared_pool(self.config.pool_size)
        self._crowd = shared_crowd(self.config.runners)
        folder = default_folder() if self.config.cache_dir is None else self.config.cache_dir
        # A program can include host files that the policy shows, and these may change: its compilation is not cached.
        shown = self.policy.allowed_paths or self.policy.mounts
        self._cache = CompileCache(folder) if folder and not shown else None

    def capabilities(self) -> BackendCapabilities:
        """See ``SandboxBackend``; measured once, in a jail with the same walls."""
        from sandbox_kernel.backends.probes.capabilities import process_capabilities  # slow to import and rarely needed

        return process_capabilities(self)

    def available_languages(self) -> tuple[Language, ...]:
        """See ``SandboxBackend``; searches for interpreters and compilers once, without running a canary."""
        return tuple(language for language in MODULES if availability(self.config, language).available)

    def run(self, request: ExecRequest, context: RunContext = ALONE) -> ExecResult:
        """See ``BlockingBackend``. Of many runs at once, those that need nothing of this process go to runners."""
        check_request(request)
        context = replace(context, on_output=guarded(context.on_output), on_usage=guarded(context.on_usage))
        lent = (context.on_input, context.stdin_from, context.here, context.functions)
        grants = self.policy.mounts or self.policy.allowed_paths  # a runner would open these paths anew
        may_move = lent == (None,) * len(lent) and not grants and not self._lets_out
        try:
            with self._crowd.one_more(may_move=may_move) as runner, host_trouble():
                if runner is not None and (result := runner.run(self._setup, request, context)) is not None:
                    return result
                return self._run_here(request, context)
        except ListenerFailed as error:
            raise error.reason from None

    def _run_here(self, request: ExecRequest, context: RunContext) -> ExecResult:
        """Run a request in a jail of this process: over the layer of the user's folder, else on a private copy."""
        recipe, here = self._recipe(request), context.here
        check_files_fit(request)
        walls = self.walls(request, recipe)
        with self.egress() as proxy, context.served() as calls:
            run = _Run(request=request, context=context, recipe=recipe, proxy=proxy, calls=calls)
            if here is None:
                return self._in_jail(run, walls)
            try:
                return self._in_jail(run, replace(walls, here=here.path, here_id=here.project.identity()))
            except NoLayer as error:
                return self._in_jail(replace(run, notes=(notes.folder_copied(str(error)),)), walls)

    def _in_jail(self, run: _Run, walls: Walls, *, again: bool = True) -> ExecResult:
        """Run in a jail; in another one if a spare was killed before it got its order."""
        jail = self._pool.take(walls)
        try:
            run = run.filled(jail)
            plan, job = self._job(run, jail.places)
            outcome = run.start(jail, job)
            if self._cache is not None and plan.cache_key is not None and outcome.kept:
                self._cache.put(plan.cache_key, Compiled(*outcome.kept))
            request, isolation, chosen = run.request, self.isolation_class, run.context.chosen
            result = run_result(request, outcome, job, plan, backend=self.name, isolation=isolation, chosen=chosen)
            code = request.code if isinstance(request.code, str) else ""
            tried = outcome.exits[-1].tried if outcome.exits else ()
            return self._ended(run, jail, result, NetworkSigns(result.stderr, code, tried))
        except SpareGone:
            if not again:
                raise
        finally:
            jail.destroy()
            if not walls.here:
                jail.forget()
            else:
                # The kernel takes a layer apart when its last descriptor is closed: milliseconds.
                bury(jail.forget)
            self._pool.done()
        return self._in_jail(run, walls, again=False)

    @functools.cached_property
    def _setup(self) -> bytes:
        """How a runner makes a backend like this one, pickled."""
        import pickle

        return pickle.dumps(ProcessSetup(replace(self.config, runners=0), self.policy, self._enforcer_name))

    def network_env(self) -> dict[str, str]:
        """Return the network variables of a program except the proxy address, which the jail adds; empty if offline."""
        if not self._lets_out:
            return {}
        named = {rule.domain for rule in self.policy.network_rules}
        # Its own servers are reached directly, unless a rule names the loopback of the host. The first is for Node.js.
        own = ",".join(host for host in ("localhost", "127.0.0.1", "::1") if host not in named)
        return {"NODE_USE_ENV_PROXY": "1", "no_proxy": own, "NO_PROXY": own}

    def warm(self, language: Language, memory_mb: int | None = None) -> None:
        """Start to make a spare jail for the first request of a language, in the background."""
        request = ExecRequest(language=language, code="#", timeout=1, memory_limit_mb=memory_mb)
        self._pool.warm(self.walls(request, self._recipe(request)))

    def begin(self, walls: Walls) -> None:
        """Start one jail that a session with these walls will take; see ``Pool.begin``."""
        self._pool.begin(walls)

    def check_command(self, request: ExecRequest, command: str) -> None:
        """Raise ``CommandNotFound`` for a program that does not exist inside the walls of a request. Starts nothing."""
        recipe = self._recipe(request)
        walls = self.walls(request, recipe)
        env = self._step_builder(request, recipe, Places()).environment(request)
        check_command(command, env["PATH"], (*walls.runtime, *walls.grants) if self.enforcer is not None else None)

    def walls(self, request: ExecRequest, recipe: Recipe) -> Walls:
        """Return the walls that a request needs, for the recipe of its language."""
        python = find_python(self.config.python_path)
        self.check_network()
        check_gpu_limit(request.limits.gpu_memory_mb, self.policy.gpu)
        places = Places() if has_own_disk(self._enforcer_name) else Places(guest=guest_folder())
        command = recipe.warm(self.config, request.memory_mb, places)
        rights = (tuple(self._rlimits(request, recipe).items()), self.step_filter()) if command else ()
        box, tmp, shm = sizes(request.limits, request.memory_mb)
        walls = Walls(
            python.executable,
            tuple(dict.fromkeys((*python.runtime, *recipe.runtime(self.config)))),
            self.grants.now(),
            box,
            tmp,
            shm,
            preload=("site", *self.config.preload) if recipe.language is Language.PYTHON else ("site",),
            warm=Warm(command, *rights) if command else None,
            enforcer=self._enforcer_name,
            templates=self.config.templates,
        )
        return with_gpu(walls, self.policy.gpu)

    def _recipe(self, request: ExecRequest) -> Recipe:
        if request.language is Language.WASM:
            raise InvalidRequest("wasm is not run by the process backend; use WasmBackend (backend='wasm')")
        found = availability(self.config, request.language)
        if not found.available:
            remedy = f"; {found.remedy}" if found.remedy else ""
            raise BackendUnavailable(f"{request.language} cannot run here: {found.reason}{remedy}")
        recipe = recipe_of(request.language)
        if request.memory_mb < recipe.minimum_memory_mb:
            raise InvalidRequest(
                f"a memory limit of {request.memory_mb} MB is below what {request.language} needs to start; "
                f"give at least {recipe.minimum_memory_mb} MB"
            )
        return recipe

    def _rlimits(self, request: ExecRequest, recipe: Recipe) -> dict[str, int]:
        most = request.limits.processes + OWN_PROCESSES
        return rlimits(
            self._enforcer_name, request.limits, request.memory_mb, processes=most, reserved_mb=recipe.reserved_mb
        )

    def step_filter(self, *, host_decides: bool = False) -> bytes | None:
        """The program's filter besides that of its jail; None for none. ``host_decides``: see ``build_step_filter``."""
        may_spawn = self.policy.process_spawn
        watched = self.enforcer is not None and find_hierarchies() is None
        if may_spawn and not watched:
            return None
        return seccomp.build_step_filter(
            seccomp.host_arch(), may_spawn=may_spawn, memory_is_watched=watched, host_decides=host_decides
        )

    def _step_builder(
        self, request: ExecRequest, recipe: Recipe, places: Places, *, calls_host: bool = False
    ) -> StepBuilder:
        python = find_python(self.config.python_path)
        return StepBuilder(
            config=self.config,
            places=places,
            path=search_path(python.executable),
            policy_env=self.policy.env,
            rlimits=self._rlimits(request, recipe),
            no_spawn=self.step_filter(),
            cache=self._cache,
            network_env=self.network_env(),
            calls_host=calls_host,
        )

    def _job(self, run: _Run, places: Places) -> tuple[ProgramPlan, Job]:
        request, context = run.request, run.context
        builder = self._step_builder(request, run.recipe, places, calls_host=run.calls is not None)
        if context.here is not None:
            # As with files that the policy shows: a compiled program may include some of the folder.
            # And what tools keep in the home of a user does not belong into the user's folder.
            builder = replace(builder, cache=None, home=places.tmp)
        plan = run.recipe.plan(request, builder)
        job = Job(
            steps=plan.steps,
            files=[*plan.files, *(given_files(request, places) if context.here is None else ())],
            stdin=request.stdin_bytes,
            stdin_from=context.stdin_from,
            asks_user=context.on_input is not None,
            timeout_s=request.timeout,
            memory_bytes=request.memory_mb * MIB,
            processes=request.limits.processes,
            cpu_seconds=request.limits.cpu_seconds,
            gpu_memory_mb=request.limits.gpu_memory_mb,
            output_bytes=request.limits.output_bytes,
            preamble=plan.messages or b"",
        )
        if run.calls is None:
            return plan, job
        from sandbox_kernel.backends.functions.inside import with_call_socket

        return plan, with_call_socket(job, run.calls, places, find_python(self.config.python_path).executable)


@dataclass(frozen=True, kw_only=True)
class _Run(JailRun):
    recipe: Recipe
