/* backend.h - what executes a program: the processor of the host, or a GPU.
 *
 * A run chooses its backend when it is opened (sk_program.gpu says which) and from then on calls
 * it through this table; nothing else in run/ asks where a program runs.  In the order in which a
 * run calls them:
 *
 *     open      takes the device's memory; r->device is its first byte
 *     prepare   r->args are filled: kernels are chosen, tables are written; no buffer holds
 *               anything of value yet
 *     connect   r->comm is there: all ranks call it together; no buffer holds anything of value
 *     section   executes the instructions [from, to): a training step, a validation step or a
 *               forward pass; fills r->out and r->skip
 *     stop      background workers that wait for the device give up
 *     close     after the background workers have ended; also after an open that failed
 *
 * Private to run/. */
#ifndef SK_RUN_BACKEND_H
#define SK_RUN_BACKEND_H

#include "kernel/kernel_launch.h"
#include "run/run_state.h"

typedef struct sk_backend {
    sk_status (*open)(sk_arena *a, sk_run *r);
    sk_status (*prepare)(sk_arena *a, sk_run *r);
    sk_status (*connect)(sk_arena *a, sk_run *r);
    sk_status (*section)(sk_run *r, int from, int to);
    void (*stop)(sk_run *r);
    void (*close)(sk_run *r);

    /* Executes one instruction; NULL: the backend executes whole sections only. */
    sk_status (*one)(sk_run *r, int pc);
    /* Writes the tables of this run again: another run over the same memory has overwritten them.
     */
    sk_status (*write_tables)(sk_run *r);

    /* Kept buffers, from the host's addresses to the device and back. */
    sk_status (*push)(sk_run *r);
    sk_status (*pull)(sk_run *r);
    sk_status (*push_buffer)(sk_run *r, int buf); /* its first values were written */
    sk_status (*pull_buffer)(sk_run *r, int buf); /* also gradients and extras; NULL: not needed */
    sk_status (*write)(const sk_run *r, int buf, const void *data, size_t bytes);

    /* NULL, all of them: every instruction is executed by itself, by the one kernel it has. */
    int (*launch_at)(const sk_run *r, int pc); /* the instruction at whose place its launch is */
    const char *const *(*launch_names)(const sk_run *r); /* as sk_run_launch_names */
    /* Which of its kernels the launch of an op takes; without a name: it has no launch. */
    const sk_variant *(*variant)(const sk_run *r, int pc);
    sk_status (*usage)(sk_run *r, sk_gpu_usage *out);
} sk_backend;

extern const sk_backend sk_backend_cpu, sk_backend_gpu;

#endif
