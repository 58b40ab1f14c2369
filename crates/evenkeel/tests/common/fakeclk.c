// Runs a program whose wall clock (CLOCK_REALTIME) is off by as many seconds as a file says, read at each call. The other
// clocks stay as they are. For x86-64 Linux: a preloaded library does not reach a program that makes its system calls itself.
//
//   cc -O1 -o fakeclk fakeclk.c; ./fakeclk OFFSET_FILE PROGRAM [ARGUMENT ...]
//
// The program runs under ptrace. At its start the vDSO is taken out of its auxiliary vector and loses its magic number (there are
// other ways to its address), so that it asks the kernel for the time; a seccomp filter stops it at each clock_gettime(CLOCK_REALTIME), which is then answered here.
// Exit status 99: the system allows no such filter or trace.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t child;

static void pass_on(int signal) {
    if (child > 0) kill(child, signal);
}

static long long offset_ns(const char *path) {
    FILE *file = fopen(path, "r");
    double seconds = 0;
    if (file) {
        if (fscanf(file, "%lf", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return (long long)(seconds * 1e9);
}

static void run(char **arguments) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_REALTIME, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(99);
    raise(SIGSTOP);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(99);
    execv(arguments[0], arguments);
    _exit(98);
}

static void hide_vdso(pid_t thread) {
    struct user_regs_struct registers;
    ptrace(PTRACE_GETREGS, thread, 0, &registers);
    unsigned long at = registers.rsp;
    at += 8 * (ptrace(PTRACE_PEEKDATA, thread, at, 0) + 2);
    while (ptrace(PTRACE_PEEKDATA, thread, at, 0)) at += 8;
    for (at += 8;; at += 16) {
        long kind = ptrace(PTRACE_PEEKDATA, thread, at, 0);
        if (kind == AT_NULL) return;
        if (kind == AT_SYSINFO_EHDR) {
            long vdso = ptrace(PTRACE_PEEKDATA, thread, at + 8, 0);
            ptrace(PTRACE_POKEDATA, thread, at, AT_IGNORE);
            ptrace(PTRACE_POKEDATA, thread, vdso, 0);
        }
    }
}

static void answer(pid_t thread, const char *path) {
    struct user_regs_struct registers;
    struct timespec now;
    ptrace(PTRACE_GETREGS, thread, 0, &registers);
    clock_gettime(CLOCK_REALTIME, &now);
    long long ns = now.tv_sec * 1000000000LL + now.tv_nsec + offset_ns(path);
    ptrace(PTRACE_POKEDATA, thread, registers.rsi, ns / 1000000000LL);
    ptrace(PTRACE_POKEDATA, thread, registers.rsi + 8, ns % 1000000000LL);
    registers.orig_rax = -1;
    registers.rax = 0;
    ptrace(PTRACE_SETREGS, thread, 0, &registers);
}

int main(int count, char **arguments) {
    int status;
    if (count < 3) return 96;
    child = fork();
    if (!child) run(arguments + 2);
    signal(SIGTERM, pass_on);
    signal(SIGINT, pass_on);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
                   PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options)) return 99;
    ptrace(PTRACE_CONT, child, 0, 0);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) {
            if (errno == EINTR) continue;
            return 97;
        }
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_EXEC) hide_vdso(thread);
        if (event == PTRACE_EVENT_SECCOMP) answer(thread, arguments[1]);
        if (event || signal == SIGTRAP || signal == SIGSTOP) signal = 0;
        ptrace(PTRACE_CONT, thread, 0, signal);
    }
}
