# One cell of a command session: a new bash that loads the state of the last one, runs the cell and saves its own state.
#
#   bash --norc --noprofile shell_cell.sh STATE-BEFORE STATE-AFTER CELL
#
# A state is three files: .shopt is read first (it decides how functions are parsed), then .names, and .set last (errexit
# and nounset could stop the reading). The last line of .set marks the state as complete. Commands are called with
# "builtin", because the cell may define functions of the same names.

__sandbox_before=$1 __sandbox_after=$2 __sandbox_cell=$3
BASH_ARGV0=bash

__sandbox_save() {
  builtin set +o >|"$__sandbox_after.set"
  builtin shopt -p >|"$__sandbox_after.shopt"
  builtin declare -p IFS >|"$__sandbox_after.names" || :
  builtin local -
  builtin set +eufxvC
  builtin local IFS=$' \t\n' __sandbox_name
  {
    builtin compgen -v >|"$__sandbox_after.list"
    while builtin read -r __sandbox_name; do
      case $__sandbox_name in
        __sandbox_* | BASH | BASH_* | BASHOPTS | BASHPID | COMP_* | DIRSTACK | EPOCH* | EUID | FUNCNAME | GROUPS) ;;
        HISTCMD | IFS | LINENO | PIPESTATUS | PPID | PWD | RANDOM | SECONDS | SHELLOPTS | SHLVL | SRANDOM | UID | _) ;;
        *) builtin declare -p "$__sandbox_name" ;;
      esac
    done <"$__sandbox_after.list"
    builtin unset -f __sandbox_save trap
    builtin declare -f
    builtin declare -Fx
    builtin alias -p
    builtin umask -p
    builtin printf 'builtin cd -- %q\n' "$PWD"
    builtin printf 'builtin set --'
    (($# == 0)) || builtin printf ' %q' "$@"
    builtin printf '\n'
  } >>"$__sandbox_after.names"
  builtin printf '# whole\n' >>"$__sandbox_after.set"
}

# The state is saved in the EXIT trap; an EXIT trap of the cell is called after that.
trap() {
  builtin local __sandbox_signal
  if (($# > 1)) && [[ $1 != -[lp] ]]; then
    for __sandbox_signal in "${@:2}"; do
      case ${__sandbox_signal^^} in
        0 | EXIT | SIGEXIT) __sandbox_exit=${1#-} ;;
        *) builtin trap "$1" "$__sandbox_signal" ;;
      esac
    done
  else
    builtin trap "$@"
  fi
}

__sandbox_exit=
# An interrupt exits the shell, which saves the state; a second interrupt must not stop the saving.
builtin trap 'exit 130' INT
# set -x must not show our part of the trap.
builtin trap '__sandbox_code=$?
{ builtin trap "" INT; __sandbox_save "$@"; } 2>/dev/null
[ -z "$__sandbox_exit" ] || { (builtin exit "$__sandbox_code"); eval "$__sandbox_exit"; }' EXIT

builtin set --
for __sandbox_part in shopt names set; do
  [ ! -e "$__sandbox_before.$__sandbox_part" ] || . "$__sandbox_before.$__sandbox_part"
done 2>/dev/null
. "$__sandbox_cell"
