"""The provisioner: any kernelspec that names it, or every kernel of a server, starts in a jail."""

from importlib.metadata import entry_points

import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import KernelProvisionerFactory
from traitlets.config import Config

from sandbox_kernel.limits import DEFAULT_MEMORY_MB
from sandbox_kernel.notebook.options.option_table import BY_SETTING
from sandbox_kernel.wrapped.provisioner import SandboxProvisioner
from sandbox_kernel.wrapped.wrap_options import WrapOptions


def test_both_names_of_the_provisioner_are_registered():
    found = {entry.name: entry.load() for entry in entry_points(group="jupyter_client.kernel_provisioners")}
    assert found["sandbox"] is found["sandbox-provisioner"] is SandboxProvisioner


def test_a_kernel_without_a_setting_has_the_memory_of_every_run():
    assert not any(getattr(SandboxProvisioner(), name) for name in BY_SETTING)
    assert WrapOptions(command=("x",)).memory_mb == DEFAULT_MEMORY_MB


def test_the_provisioner_takes_the_settings_of_the_one_table():
    assert set(SandboxProvisioner.class_own_traits(config=True)) == set(BY_SETTING)


@pytest.mark.slow
def test_a_kernelspec_that_names_it_starts_in_a_jail_with_its_limits_and_variables(spec, start, tmp_path):
    (tmp_path / "shown.txt").write_text("shown")
    given = {"memory": "512M", "timeout": "2s", "mounts": [f"{tmp_path}:/data"]}
    kernel = start(spec("walled", provisioned=given, env={"GREETING": "hello"}))
    assert kernel.text("import os; print(os.getcwd(), os.environ['GREETING'])") == "/box hello\n"
    assert kernel.text("print(open('/data/shown.txt').read())") == "shown\n"
    reply, _ = kernel.run("import time; time.sleep(60)")
    assert reply["ename"] == "KeyboardInterrupt"


def test_a_wrong_setting_is_told_when_the_kernel_starts(spec):
    manager = KernelManager(kernel_name=spec("wrong", provisioned={"memory": "lots"}))
    with pytest.raises(RuntimeError, match="lots"):
        manager.start_kernel()


def test_a_server_can_wall_every_kernel_by_its_configuration(monkeypatch):
    config = Config()
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "sandbox")
    config.SandboxProvisioner.memory = "600M"
    KernelProvisionerFactory.clear_instance()
    manager = KernelManager(kernel_name="python3", config=config)
    try:
        manager.start_kernel()
        assert isinstance(manager.provisioner, SandboxProvisioner)
        assert '"memory": "600M"' in " ".join(manager.provisioner.process.args)
    finally:
        manager.shutdown_kernel(now=True)
        KernelProvisionerFactory.clear_instance()


@pytest.mark.parametrize("name", ["sandbox", "wrapped-already"])
@pytest.mark.one_case
def test_a_server_that_walls_every_kernel_starts_those_with_walls_as_they_are(name, wrap, monkeypatch):
    wrap("python3", as_name="wrapped-already")
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "sandbox")
    KernelProvisionerFactory.clear_instance()
    manager = KernelManager(kernel_name=name)
    try:
        manager.start_kernel()
        assert isinstance(manager.provisioner, SandboxProvisioner)
        assert manager.provisioner.process.args[1:] == [
            word.replace("{connection_file}", manager.connection_file) for word in manager.kernel_spec.argv[1:]
        ]
    finally:
        manager.shutdown_kernel(now=True)
        KernelProvisionerFactory.clear_instance()


@pytest.mark.slow
def test_a_kernel_is_interrupted_and_a_dead_one_is_started_again_by_the_server(spec, start):
    kernel = start(spec("dies", provisioned={}))
    request = kernel.kc.execute("import time\nprint('begun', flush=True)\ntime.sleep(60)")
    kernel.wait_for_output(request, "begun")
    kernel.km.interrupt_kernel()
    assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    request = kernel.kc.execute("import os; os._exit(3)")
    [error] = [content for kind, content in kernel.outputs(request, 60) if kind == "error"]
    assert error["ename"] == "SandboxKilled"
    assert error["evalue"] == "the kernel ended itself with exit code 3; variables are lost"
    kernel.km.provisioner.process.wait(20)
    assert not kernel.km.is_alive()
    kernel.km.restart_kernel(now=True)
    kernel.kc.wait_for_ready(timeout=60)
    assert kernel.text("print('alive')") == "alive\n"
