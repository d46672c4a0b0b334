"""Which files of a folder are hidden: by name, at any depth, and again when the folder changes."""

import os
from pathlib import Path

import pytest

from sandbox_kernel.workspace import hidden
from sandbox_kernel.workspace.hidden import HiddenFiles, is_hidden


@pytest.mark.parametrize(
    "path",
    [".env", "a/.env", ".env.local", "prod.env", ".git/config", "a/.git/config", ".ssh/id_rsa", "key.pem", "KEY.PEM",
     ".netrc", ".aws/credentials", "deep/.config/gcloud/x", "client_secret_1.json", "a/secrets.yaml", ".git/config.lock", "vault_pass.txt", "rootkey.csv",
     ".claude/.credentials.json", ".codex/auth.json", ".cargo/credentials.toml", "service-account.json",
     "serviceAccountKey.json", "firebase-adminsdk-x.json", "Application_Default_Credentials.json", "token.json",
     "my-token.txt", "terraform.tfvars", ".dev.vars", "secrets.json", "auth.json", "id_ed25519_work", "key.ppk",
     ".zsh_history", ".python_history", ".yarnrc.yml", ".m2/settings.xml", "mirror.git/config", ".git/logs/HEAD",
     ".local/share/jupyter/runtime/kernel-1.json", ".env-prod", ".flaskenv", "env.local", ".vscode/sftp.json", "vpn.ovpn",
     "Chrome Passwords.csv", "db_password.txt", "apikey.txt", "private_key.json", "secrets/db", "node_modules/x/.env",
     ".a-tool-of-tomorrow/auth", "deep/.nobody/knows/it.json", "secrets.json~", "sub/.git/config.worktree",
     ".git/modules/lib/config", ".git/modules/a/b/config", ".env~", ".env.bak", "#.env#", ".server.pem.swp", "kaggle.json",
     "server.key.old", "id_rsa.bak", "x/.huggingface/token", "secrets.toml~", ".git/config~", ".ENV", "a/.Git/Config",
     ".SSH/x/y"],
)  # fmt: skip
def test_a_place_of_secrets_is_hidden(path: str) -> None:
    assert is_hidden(path)


@pytest.mark.parametrize(
    "path",
    ["environment.yml", ".env.example", ".git/HEAD", "config", "data/keys.csv", "certifi/cacert.pem", "monkey.txt",
     ".gitignore", ".gitattributes", ".github/workflows/a.yml", ".editorconfig", ".python-version", ".dockerignore",
     ".pre-commit-config.yaml", ".venv/lib/python3.11/site-packages/x/.hidden/y", ".eslintrc.json", "tokenizer.json",
     "special_tokens_map.json", "added_tokens.json", "tokens.txt", "secrets.py", "src/auth/credentials.py", "password.js",
     "node_modules/x/.npmignore", "node_modules/@aws-sdk/credential-providers/package.json", "data.zarr/.zarray",
     ".ipynb_checkpoints/a.ipynb", ".vscode/settings.json", "env.yml", "id_map.json", "secretary.json", ".git/refs/x",
     "README.md~", "data.old", "token", "model.bak", "monkey.py", "a/config"],
)  # fmt: skip
def test_an_ordinary_file_is_not_hidden(path: str) -> None:
    assert not is_hidden(path)


def test_a_secret_that_comes_later_is_found(project: Path) -> None:
    hidden = HiddenFiles(str(project))
    assert hidden.find() == (".env",)
    (project / "src" / "id_rsa").write_text("key")
    (project / ".ssh").mkdir()
    (project / ".ssh" / "known_hosts").write_text("x")
    assert hidden.find() == (".env", ".ssh", "src/id_rsa")
    (project / ".env").unlink()
    assert hidden.find() == (".ssh", "src/id_rsa")


def test_a_link_to_a_folder_does_not_lead_the_look_out(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / ".env").write_text("x")
    (project / "out").symlink_to(tmp_path / "outside")
    assert HiddenFiles(str(project)).find() == (".env",)


def test_a_secret_that_comes_in_the_moment_of_the_look_is_found(project: Path) -> None:
    hidden = HiddenFiles(str(project))
    moment = (project / "data").stat().st_mtime_ns + 3_600_000_000_000
    os.utime(project / "data", ns=(moment, moment))
    assert hidden.find() == (".env",)
    (project / "data/late.pem").write_text("secret")
    os.utime(project / "data", ns=(moment, moment))
    assert hidden.find() == (".env", "data/late.pem")


def test_secrets_are_hidden_whatever_suffix_has_no_source_and_in_public_folders() -> None:
    secret = (
        *("passwords.md", "password.docx", "secrets.jsonl", "credentials.zip", "hf_token", "deploy-key", "netrc"),
        *(".venv/.netrc", "node_modules/.npmrc", ".tox/.pypirc", ".hg/hgrc", ".svn/auth/x", ".git/annex/creds/1"),
        *(".cargo/config.toml", ".mvn/settings-security.xml", ".jj/repo/config.toml", ".git/gh_token"),
    )
    assert [path for path in secret if not is_hidden(path)] == []
    shown = (
        "password_reset/views.py",
        "src/token.ts",
        "tests/test_credentials.py",
        "node_modules/x/.eslintrc",
        ".hg/store",
    )
    assert [path for path in shown if is_hidden(path)] == []


def test_copies_of_copies_are_looked_through_a_few_times_and_then_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    look = hidden._matches
    monkeypatch.setattr(hidden, "_matches", lambda path, name, copies=0: asked.append(name) or look(path, name, copies))
    assert not is_hidden("rows.csv" + "~" * 245)
    assert is_hidden(".env" + "~" * 200)
    assert is_hidden("rows.csv" + ".bak" * 50)
    assert len(asked) < 20
