/* What a session of Node.js lacks: checkpoints, and connections to host functions.
 *
 * Checkpoints are forks that sleep (are frozen) until the gate wakes them.
 *
 * Does for JavaScript, which cannot fork, what freeze.py does for Python. It works because V8 runs on one thread (so a
 * fork loses none), because this file marks V8's pages to be copied (V8 excludes them from forks, expecting an exec to
 * follow), and because libuv can go on after a fork.
 *
 * Needs no header of Node.js: the functions that it uses are declared here and have not changed since version 8.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct env *napi_env;
typedef struct value *napi_value;
typedef struct info *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);
extern int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
extern int napi_create_int32(napi_env, int, napi_value *);
extern int napi_set_named_property(napi_env, napi_value, const char *, napi_value);
extern int napi_get_cb_info(napi_env, napi_callback_info, size_t *, napi_value *, napi_value *, void **);
extern int napi_get_value_int32(napi_env, napi_value, int *);
extern int napi_get_uv_event_loop(napi_env, void **);
extern int uv_loop_fork(void *);

enum { MOST_FILES = 1024 };

/* The same signal as WAKE in checkpoint_gate.py. */
enum { WAKE = SIGUSR2 };

static void share_all_pages(void) {
  char line[4096];
  unsigned long start, end;
  char rights[8];
  FILE *maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return;
  while (fgets(line, sizeof line, maps) != NULL)
    if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3 && rights[3] == 'p')
      madvise((void *)start, end - start, MADV_DOFORK);
  fclose(maps);
}

static void set_oom_score(int score) {
  FILE *file = fopen("/proc/self/oom_score_adj", "w");
  if (file == NULL) return;
  fprintf(file, "%d", score);
  fclose(file);
}

/* A fork shares the positions of open files; they are recorded before the fork and set again when it wakes. */
static off_t positions[MOST_FILES];
static ino_t inodes[MOST_FILES];
static char folder[4096];
static cpu_set_t processors;
static int processors_known;

static void mark(void) {
  struct stat info;
  for (int fd = 0; fd < MOST_FILES; fd++) {
    positions[fd] = -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
      positions[fd] = lseek(fd, 0, SEEK_CUR);
      inodes[fd] = info.st_ino;
    }
  }
  processors_known = sched_getaffinity(0, sizeof processors, &processors) == 0;
  if (getcwd(folder, sizeof folder) == NULL) folder[0] = 0;
}

static void put_back(void) {
  struct stat info;
  for (int fd = 0; fd < MOST_FILES; fd++)
    if (positions[fd] >= 0 && fstat(fd, &info) == 0 && info.st_ino == inodes[fd]) lseek(fd, positions[fd], SEEK_SET);
  /* Every process of the same user can change it, even while we were frozen. */
  if (processors_known) sched_setaffinity(0, sizeof processors, &processors);
  if (folder[0] && chdir(folder) != 0) folder[0] = 0;
}

/* Sleep until the gate sends WAKE. The kernel reports the sender of a signal; those of other senders are discarded. */
static void await_wake(int gate) {
  sigset_t every;
  siginfo_t told;
  sigfillset(&every);
  do {
    if (sigwaitinfo(&every, &told) < 0) told.si_pid = -1;
  } while (told.si_pid != gate || told.si_code != SI_USER || told.si_signo != WAKE);
}

/* freeze(gate, gateScore, workerScore, sealed) forks a checkpoint. Returns its pid, 0 in a checkpoint that was woken,
 * -errno when the kernel refused. No process of the session can read or change a sealed checkpoint. */
static napi_value freeze(napi_env env, napi_callback_info info) {
  size_t count = 4;
  napi_value arguments[4], answer;
  int gate = 0, gate_score = 0, worker_score = 0, sealed = 0;
  napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
  napi_get_value_int32(env, arguments[0], &gate);
  napi_get_value_int32(env, arguments[1], &gate_score);
  napi_get_value_int32(env, arguments[2], &worker_score);
  napi_get_value_int32(env, arguments[3], &sealed);
  sigset_t every, before;
  sigfillset(&every);
  sigprocmask(SIG_BLOCK, &every, &before);
  share_all_pages();
  mark();
  int open_before = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
  set_oom_score(gate_score);
  if (sealed) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  int pid = fork();
  if (pid < 0) pid = -errno;
  if (pid == 0) {
    setsid();
    await_wake(gate);
  }
  prctl(PR_SET_DUMPABLE, open_before, 0, 0, 0);
  set_oom_score(worker_score);
  if (pid == 0) {
    void *loop;
    put_back();
    if (napi_get_uv_event_loop(env, &loop) == 0) uv_loop_fork(loop);
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  napi_create_int32(env, pid, &answer);
  return answer;
}

/* pid() returns our real pid: process.pid still has the value from before the fork. */
static napi_value own_pid(napi_env env, napi_callback_info info) {
  napi_value answer;
  (void)info;
  napi_create_int32(env, getpid(), &answer);
  return answer;
}

/* exit(code) exits at once; Node.js's own exit would wait for threads, which a fork does not have. */
static napi_value leave(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value code;
  int number = 0;
  napi_get_cb_info(env, info, &count, &code, NULL, NULL);
  napi_get_value_int32(env, code, &number);
  _exit(number);
}

static int first_argument(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value given;
  int number = -1;
  napi_get_cb_info(env, info, &count, &given, NULL, NULL);
  napi_get_value_int32(env, given, &number);
  return number;
}

/* line(call_socket) opens a connection to host functions, as _Line of caller.py does. Returns its descriptor or -1. */
static napi_value open_line(napi_env env, napi_callback_info info) {
  int call_socket = first_argument(env, info), ends[2] = {-1, -1};
  char knock = 0;
  struct iovec data = {&knock, 1};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } rights = {0};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) {
    rights.head.cmsg_level = SOL_SOCKET;
    rights.head.cmsg_type = SCM_RIGHTS;
    rights.head.cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(&rights.head) = ends[1];
    if (sendmsg(call_socket, &message, MSG_NOSIGNAL) != 1) {
      close(ends[0]);
      ends[0] = -1;
    }
    close(ends[1]);
  }
  napi_value answer;
  napi_create_int32(env, ends[0], &answer);
  return answer;
}

/* ready(fd) waits until there is something to read, and returns 1; 0 when an interrupt came first. Node.js itself goes on
 * to wait after an interrupt. */
static napi_value ready(napi_env env, napi_callback_info info) {
  struct pollfd waits = {.fd = first_argument(env, info), .events = POLLIN};
  sigset_t others;
  sigfillset(&others);
  sigdelset(&others, SIGINT);
  int found = ppoll(&waits, 1, NULL, &others);
  napi_value answer;
  napi_create_int32(env, found > 0, &answer);
  return answer;
}

static void offer(napi_env env, napi_value exports, const char *name, size_t length, napi_callback callback) {
  napi_value function;
  napi_create_function(env, name, length, callback, NULL, &function);
  napi_set_named_property(env, exports, name, function);
}

napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  offer(env, exports, "freeze", 6, freeze);
  offer(env, exports, "pid", 3, own_pid);
  offer(env, exports, "exit", 4, leave);
  offer(env, exports, "line", 4, open_line);
  offer(env, exports, "ready", 5, ready);
  return exports;
}
