/* Preloaded into a fleet: counts the system calls of its processes, and lets one of them fail.
 *
 * FAULTS_TABLE: a file of zeros of `fault_size()` bytes that all processes share.
 * FAULTS_AT: role,call,kind,errno,nth,lasts as numbers; without it calls are only counted.
 * `lasts`: milliseconds from the nth call on; 0: only that one fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum role { NOBODY, CLIENT, ORCHESTRATOR, ZYGOTE, WORKER, ROLES };
enum call {
  WRITE, READ, SEND, RECEIVE, CREATE, OPEN, SYNC, TRUNCATE, RENAME, MKDIR, UNLINK, ACCEPT, SOCKET,
  PIPE, FORK, WATCH, CALLS
};
enum kind { OTHER, FILES, OUTPUT, PIPES, SOCKETS, KINDS };

const char *const fault_roles[] = {"nobody", "client", "orchestrator", "zygote", "worker", 0};
const char *const fault_calls[] = {
    "write", "read", "send", "receive", "create", "open", "sync", "truncate", "rename",
    "mkdir", "unlink", "accept", "socket", "pipe", "fork", "watch", 0};
const char *const fault_kinds[] = {"other", "file", "output", "pipe", "socket", 0};

struct table {
  _Atomic unsigned injected, since;
  _Atomic unsigned counts[ROLES][CALLS][KINDS];
};

static struct table *table;
static enum role born;
static unsigned at_role, at_call, at_kind, at_error, at_nth, at_lasts;

unsigned fault_size(void) { return sizeof(struct table); }

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAULTS_TABLE"), *at = getenv("FAULTS_AT");
  char line[4096];
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
  if (fd >= 0) close(fd);
  for (ssize_t i = 0; i < length; i++)
    if (!line[i]) line[i] = ' ';
  line[length > 0 ? length : 0] = 0;
  if (strstr(line, " -m beads_workers.runtime.main ")) born = ORCHESTRATOR;
  else if (strstr(line, " -m beads_workers start ")) born = CLIENT;
  if (!path || !born) return;
  fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  if (at) sscanf(at, "%u,%u,%u,%u,%u,%u", &at_role, &at_call, &at_kind, &at_error, &at_nth, &at_lasts);
  void *mapped = mmap(0, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) table = mapped;
}

/* A fork goes by the name that it has given itself. */
static enum role role_now(void) {
  char name[16] = "";
  if (born != ORCHESTRATOR) return born;
  prctl(PR_GET_NAME, name);
  if (!strcmp(name, "bw-zygote")) return ZYGOTE;
  return strncmp(name, "bw-W", 4) ? ORCHESTRATOR : WORKER;
}

static unsigned now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000u + time.tv_nsec / 1000000;
}

static int fails(enum call call, enum kind kind) {
  if (!table || kind == OTHER) return 0;
  enum role role = role_now();
  unsigned number = 1 + atomic_fetch_add(&table->counts[role][call][kind], 1);
  if (!at_nth || role != at_role || call != at_call || kind != at_kind) return 0;
  if (number < at_nth || (number > at_nth && !at_lasts)) return 0;
  if (number == at_nth) table->since = now();
  else if (now() - table->since >= at_lasts) return 0;
  atomic_fetch_add(&table->injected, 1);
  errno = at_error;
  return 1;
}

static enum kind kind_of(int fd) {
  struct stat status;
  int before = errno;
  if (!table || fstat(fd, &status)) {
    errno = before;
    return OTHER;
  }
  if (S_ISSOCK(status.st_mode)) return SOCKETS;
  if (S_ISFIFO(status.st_mode)) return fd == 1 || fd == 2 ? OUTPUT : PIPES;
  if (S_ISREG(status.st_mode)) return fd == 1 || fd == 2 ? OUTPUT : FILES;
  return OTHER;
}

/* What the interpreter loads, and what the kernel tells, is no file of ours. */
static enum kind kind_at(const char *path) {
  const char *dot = strrchr(path, '.');
  if (!strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5) || !strncmp(path, "/dev/", 5))
    return OTHER;
  if (strstr(path, "pyvenv.cfg") || strstr(path, "/lib/python") || strstr(path, "__pycache__")) return OTHER;
  return dot && (!strcmp(dot, ".py") || !strcmp(dot, ".so")) ? OTHER : FILES;
}

#define NEXT(name) \
  static __typeof__(&name) next; \
  if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define ON_FD(call, result, name, parameters, ...) \
  result name parameters { \
    NEXT(name); \
    return fails(call, kind_of(fd)) ? -1 : next(__VA_ARGS__); \
  }

#define ALWAYS(call, kind, result, name, parameters, ...) \
  result name parameters { \
    NEXT(name); \
    return fails(call, kind) ? -1 : next(__VA_ARGS__); \
  }

ON_FD(WRITE, ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
ON_FD(WRITE, ssize_t, writev, (int fd, const struct iovec *parts, int count), fd, parts, count)
ON_FD(WRITE, ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
ON_FD(WRITE, ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
ON_FD(READ, ssize_t, read, (int fd, void *data, size_t size), fd, data, size)
ON_FD(READ, ssize_t, pread, (int fd, void *data, size_t size, off_t at), fd, data, size, at)
ON_FD(READ, ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), fd, data, size, at)
ON_FD(SEND, ssize_t, send, (int fd, const void *data, size_t size, int flags), fd, data, size, flags)
ON_FD(SEND, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), fd, message, flags)
ON_FD(RECEIVE, ssize_t, recv, (int fd, void *data, size_t size, int flags), fd, data, size, flags)
ON_FD(RECEIVE, ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), fd, message, flags)
ON_FD(SYNC, int, fsync, (int fd), fd)
ON_FD(SYNC, int, fdatasync, (int fd), fd)
ON_FD(TRUNCATE, int, ftruncate, (int fd, off_t length), fd, length)
ON_FD(TRUNCATE, int, ftruncate64, (int fd, off64_t length), fd, length)
ON_FD(ACCEPT, int, accept4, (int fd, struct sockaddr *peer, socklen_t *size, int flags), fd, peer, size, flags)

ALWAYS(RENAME, kind_at(to), int, rename, (const char *from, const char *to), from, to)
ALWAYS(MKDIR, kind_at(path), int, mkdir, (const char *path, mode_t mode), path, mode)
ALWAYS(UNLINK, kind_at(path), int, unlink, (const char *path), path)
ALWAYS(SOCKET, SOCKETS, int, socket, (int domain, int type, int protocol), domain, type, protocol)
ALWAYS(SOCKET, SOCKETS, int, socketpair, (int domain, int type, int protocol, int ends[2]), domain, type, protocol, ends)
ALWAYS(PIPE, PIPES, int, pipe2, (int ends[2], int flags), ends, flags)
ALWAYS(FORK, FILES, pid_t, fork, (void))
ALWAYS(WATCH, kind_of(fd), int, epoll_ctl, (int epoll, int how, int fd, struct epoll_event *event), epoll, how, fd, event)

#define OPENING(name, parameters, path, ...) \
  int name parameters { \
    NEXT(name); \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
      va_list more; \
      va_start(more, flags); \
      mode = va_arg(more, mode_t); \
      va_end(more); \
    } \
    if (fails(flags & O_CREAT ? CREATE : OPEN, kind_at(path))) return -1; \
    return next(__VA_ARGS__, flags, mode); \
  }

OPENING(open, (const char *path, int flags, ...), path, path)
OPENING(open64, (const char *path, int flags, ...), path, path)
OPENING(openat, (int folder, const char *path, int flags, ...), path, folder, path)
OPENING(openat64, (int folder, const char *path, int flags, ...), path, folder, path)
