/* spare.h - launches that fill what others leave of a GPU.
 *
 * Gradients of weights are waited for by nobody but the optimizer.  They go to a second stream, of
 * lower rank: its launches fill what the last wave of each product leaves idle, and memory is busy
 * with one while the matrix units are with the other.  The plan leaves what they read in its place
 * for a while (program.h, `until`); where it ends is found here, by who touches their memory: that
 * instruction waits for them.  So nothing rests on how patient the plan was.
 *
 * A launch itself stays as it is, to the bit.  Private to run/. */
#ifndef SK_RUN_SPARE_H
#define SK_RUN_SPARE_H

#include "run/fuse.h"
#include "run/inside.h"

typedef struct sk_spare sk_spare;

/* Of a program whose launches are planned: `gone` as of sk_fuse_plan, `l` what all launches have.
 * NULL in *out where there is nothing of the kind; also with SKEIN_SPARE=0. */
sk_status sk_spare_open(sk_arena *a, const sk_program *p, sk_device *d, const bool *gone,
                        const sk_launch *l, char *base, sk_spare **out);
/* Where instruction pc is to be launched: *l is left as it is for most. */
sk_status sk_spare_begin(sk_spare *s, int pc, sk_launch *l);
sk_status sk_spare_end(sk_spare *s, int pc); /* it was */
/* Before pc is issued, and at the end of a section: what it must not overtake. */
sk_status sk_spare_join(sk_spare *s, int pc);

#endif
