/* launch_signals.c - signals that ask a run to stop at the next step, or to end at once. */
#include "train/launcher.h"
#include "base/clock.h"

#include <signal.h>

static sk_heaps *asked_heaps;
static volatile sig_atomic_t asked, asked_by;

/* `timeout` and some shells send a signal to the process and to its group: signals within half a
 * second count once. */
static void on_signal(int sig)
{
    static double last;
    double now = sk_now();
    if (asked && now - last < 0.5) return;
    last = now;
    asked++;
    asked_by = sig;
    if (asked_heaps) sk_heaps_ask_stop(asked_heaps);
}

const int sk_stop_signals[SK_STOP_SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

void sk_launch_catch(sk_heaps *h, struct sigaction *before)
{
    struct sigaction s = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    asked = 0;
    asked_heaps = h;
    for (int i = 0; i < SK_STOP_SIGNALS; i++) sigaction(sk_stop_signals[i], &s, &before[i]);
}

void sk_launch_release(const struct sigaction *before)
{
    for (int i = 0; i < SK_STOP_SIGNALS; i++) sigaction(sk_stop_signals[i], &before[i], NULL);
    asked_heaps = NULL;
}

void sk_launch_heaps(sk_heaps *h) { asked_heaps = h; }
int sk_launch_asked(void) { return asked; }
int sk_launch_asked_by(void) { return asked_by; }
