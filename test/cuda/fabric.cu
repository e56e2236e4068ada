/* Calls and messages between GPUs by NCCL: the cases of test/lib/fabric_cases.h with 2 and with 4
 * ranks, all of them on one GPU.
 *
 * NCCL refuses two ranks on one GPU of one host.  So each rank gives itself a host of its own
 * (NCCL_HOSTID), and they talk over sockets on the loopback: slow, but every call goes its real
 * way.  Ranks are forked before anybody touches CUDA.  Then one rank stays away from a call,
 * once plain and once recorded.  An argument, "cases" or "silent", runs that alone. */
#include "device/device.h"
#include "device/nccl.h"
#include "lib/fabric_cases.h"
#include "run/gpu/inst_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIP = 77 };

static void before(int rank)
{
    char id[16];
    snprintf(id, sizeof id, "skein%d", rank);
    setenv("NCCL_HOSTID", id, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

/* In a process of its own: is there a GPU, and NCCL? */
static int look(void)
{
    sk_device *d = NULL;
    int version = 0;
    if (sk_device_open("cuda:0", &d)) {
        printf("%s\nno GPU\n", sk_error_line());
        return SKIP;
    }
    if (sk_nccl_cuda.open(&version)) {
        printf("%s\nno NCCL\n", sk_error_line());
        return SKIP;
    }
    printf("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return sk_inst_kernels_cuda.gather ? 0 : 1;
}

static int look_apart(void)
{
    int how = 0;
    pid_t pid = fork();
    if (!pid) {
        int code = look();
        fflush(stdout);
        _exit(code);
    }
    waitpid(pid, &how, 0);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 1;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    int bad = 0, code = look_apart();
    if (code) return code;
    for (int n = 2; strcmp(only, "silent") && n <= 4; n += 2)
        bad += sk_fabric_cases(n, "cuda:0", true, before);
    for (int taped = 0; strcmp(only, "cases") && taped < 2; taped++)
        bad += sk_fabric_silent(2, "cuda:0", taped, before);
    printf("%d ranks found faults\n", bad);
    return bad != 0;
}
