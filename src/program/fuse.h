/* fuse.h - instructions that a GPU executes in one launch.
 *
 * A program is written for any device, an op at a time.  On a GPU some instructions cost less
 * together: what the first would write and the second read stays on the chip.  A part
 * parts/fuse/NAME.c knows one such pattern:
 *
 *     const sk_fuse sk_fuse_NAME = {"NAME", "what it does", match, launch, prepare};
 *
 * match() looks at the instruction `pc` and says which ones become one launch, pc among them; the
 * engine then proves that this changes nothing (sk_fuse_section) and if it cannot, leaves them as
 * they are.  The launch takes place where the last of them stands: so no instruction between them
 * may write what the earlier ones read, or use what they write, and nothing that a later one writes
 * may lie where an earlier one still reads.  Memory stays as it was planned; a result that nobody
 * else reads need not be written. */
#ifndef SK_PROGRAM_FUSE_H
#define SK_PROGRAM_FUSE_H

#include "kernel/kernel_launch.h"
#include "program/program.h"

/* The section of a program that is searched, and who uses its buffers. */
typedef struct sk_fuse_site {
    const sk_program *p;
    sk_args *args; /* by instruction, for ops; a part may change those of ops that it fuses */
    int from, to;  /* the section */
    const int *reads, *reader; /* by buffer: how many instructions read it; the first of them */
} sk_fuse_site;

/* Instructions that would be one launch, in their order.  If not all can be proved to be one
 * launch, the last are left out, down to `least` of them; 0: all or none. */
typedef struct sk_fuse_set {
    int n, least, pcs[SK_MOST_FUSED];
    unsigned silent[SK_MOST_FUSED]; /* bit o: output o is not written, for only these read it */
} sk_fuse_set;

typedef struct sk_fuse {
    const char *name, *doc;
    bool (*match)(const sk_fuse_site *s, int pc, sk_fuse_set *out); /* *out is zeroed */
    sk_status (*launch)(const sk_args *const *a, int n, const sk_launch *l);
    sk_status (*prepare)(const sk_args *const *a, int n, const sk_launch *l,
                         sk_variant *took); /* or NULL; as in kernel/kernel_launch.h */
    /* After all launches are decided: changes arguments of other instructions, in s->args; or NULL.
     */
    void (*settle)(const sk_fuse_site *s, const sk_fuse_set *set);
} sk_fuse;

extern const sk_fuse *const sk_fuse_parts[]; /* every parts/fuse/NAME.c; NULL ends it */

/* Fuses what can be fused in [from, to) of a program whose buffers have offsets; adds launches to
 * the program.  args: of ops, with any base of the heap.  SKEIN_FUSE=none: nothing is fused;
 * SKEIN_FUSE=name,name: only these. */
void sk_fuse_section(sk_program *p, sk_args *args, int from, int to);

/* The first launch of fused instructions that cannot be proved correct, or -1.  For verify. */
int sk_fuse_unproved(const sk_program *p);

/* A launch as an executor has it: arguments with addresses. */
typedef struct sk_fused {
    const sk_fuse *by;
    int n;
    const sk_args *args[SK_MOST_FUSED];
} sk_fused;
/* fused[pc] is filled where a launch of several stands, gone[pc] where an instruction is part of
 * one; arguments of other instructions are changed in args. */
void sk_fuse_open(sk_arena *a, const sk_program *p, sk_args *args, sk_fused **fused, bool *gone);

/* --- for parts --- */

/* Is instruction pc the op of this name, and not part of a launch already? */
bool sk_fuse_is(const sk_fuse_site *s, int pc, const char *op);
/* The only instruction that reads output `out` of pc, if it is the op of this name and the output
 * is no kept buffer; -1 otherwise. */
int sk_fuse_only_reader(const sk_fuse_site *s, int pc, int out, const char *op);
/* All instructions of the section that read output `out` of pc, up to `most` of them, in order;
 * returns how many there are, and -1 if the output is kept, or is read by a call or in parts as
 * well. */
int sk_fuse_readers(const sk_fuse_site *s, int pc, int out, int *pcs, int most);
/* What prepare() of the op's own kernel does. */
sk_status sk_fuse_prepare(const char *op, const sk_args *a, const sk_launch *l, sk_variant *took);
/* One after the other, each by its own kernel: what a part does when it cannot do better. */
sk_status sk_fuse_singly(const char *const *ops, const sk_args *const *a, int n,
                         const sk_launch *l);
/* The nearest instruction after pc, at most `within` further, that is this op and reads `buf` as
 * its operand `in`; -1: none. */
int sk_fuse_next(const sk_fuse_site *s, int pc, const char *op, int in, int buf, int within);

#endif
