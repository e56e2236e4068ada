/* launcher.h - the launcher of a run: its state, and what its files do for each other.
 *
 *     launch.c          the order of everything; the outcome; beginning again after a rank was
 * killed launch_open.c     setup, run directory, heaps, memory.csv: what ranks inherit
 *     launch_ranks.c    starting ranks as processes or threads, watching them, reporting their
 * deaths launch_signals.c  signals that ask for a stop launch_console.c  records of the ranks,
 * config.yaml, samples
 *
 * Private to these files. */
#ifndef SK_TRAIN_LAUNCHER_H
#define SK_TRAIN_LAUNCHER_H

#include "train/console.h"
#include "train/launch.h"
#include "train/sampler.h"

#include <poll.h>
#include <pthread.h>
#include <sys/types.h>

typedef struct sk_launched_rank {
    struct sk_launcher *l;
    int rank;
    pid_t pid;
    int fd; /* readable when the process is over; -1 if the kernel is too old */
    pthread_t thread;
    atomic_bool left; /* the thread is over */
    bool alive;
    sk_status code;
} sk_launched_rank;

typedef struct sk_launcher {
    sk_arena *arena;
    const sk_job *job;
    const sk_launch_opts *o;
    sk_boot *boot;   /* NULL: this process starts all ranks */
    bool as_threads; /* ranks are threads of this process */
    sk_setup setup;
    sk_training t;
    sk_console console;
    sk_launched_rank *ranks;
    struct pollfd *endings; /* by rank: to sleep until one is over */
    int alive;              /* ranks that are */
    int phase;              /* of the newest step that was heard of: train/relayout.h */
    double kill_at;      /* after a failure: ranks that are alive then are killed; 0: none failed */
    bool keeps_memory;   /* memory.csv is written by this process */
    bool only_validates; /* a run that is there: its config.yaml and memory.csv stay as they are */
    bool config_due;     /* config.yaml and memory.csv are still to be written: the checkpoint has
                            not been read so far */
    bool told_gpu;       /* memory.csv has what is known of the GPU */
    bool stopped;        /* a rank ended because it was asked to */
    bool killed;         /* a rank was ended by a signal that is not ours */
    int fruitless;       /* restarts without a newer checkpoint */
    sk_sampler *sampler;
    char sampling[PATH_MAX]; /* the directory it reads, removed afterwards; "": it stays */
    sk_arena words;          /* of `said` */
    sk_out said;             /* by the sampler, so far */
    sk_utf8_filter filter;
    int to_say; /* tokens */
    char final[PATH_MAX];
} sk_launcher;

/* Does this process speak for the run: console, directory, records? */
static inline bool sk_launcher_leads(const sk_launcher *l) { return !l->boot || !l->boot->rank; }
/* Is that rank started here?  Under another launcher a process is one rank. */
static inline bool sk_launcher_owns(const sk_launcher *l, int rank)
{
    return !l->boot || l->boot->rank == rank;
}

/* launch_signals.c */
enum { SK_STOP_SIGNALS = 4 };
struct sigaction;
extern const int sk_stop_signals[SK_STOP_SIGNALS];
void sk_launch_catch(sk_heaps *h, struct sigaction *before); /* before: SK_STOP_SIGNALS of them */
void sk_launch_release(const struct sigaction *before);
void sk_launch_heaps(sk_heaps *h); /* those to ask for a stop; NULL: none now */
int sk_launch_asked(void);         /* signals so far */
int sk_launch_asked_by(void);      /* the last one */

/* launch_open.c */
sk_status sk_launch_prepare(sk_launcher *l);
sk_status sk_launch_open_heaps(sk_launcher *l);
sk_status sk_launch_write_memory(sk_launcher *l);
void sk_launch_make_config(sk_launcher *l, int64_t steps);

/* launch_ranks.c */
sk_status sk_launch_start(sk_launcher *l);
void sk_launch_kill(sk_launcher *l);
void sk_launch_sleep(sk_launcher *l); /* until a rank is over, for a moment at most */
void sk_launch_reap(sk_launcher *l);
/* The program that a rank runs, by its line in the control block. */
const sk_program *sk_launch_program(const sk_launcher *l, int rank, sk_arena *a);

/* launch_console.c */
void sk_launch_warn(sk_launcher *l, const char *text);
void sk_launch_warn_lines(sk_launcher *l, const char *text); /* NULL: none */
void sk_launch_head(sk_launcher *l, const char *note);
void sk_launch_read_records(sk_launcher *l);
void sk_launch_settle(sk_launcher *l);
void sk_launch_sample(sk_launcher *l, int tokens); /* some of the sample under way */
void sk_launch_final_sample(sk_launcher *l);
void sk_launch_end_sampler(sk_launcher *l);

#endif
