/* acts.h - the table of instructions: one row an act.
 *
 * A row says what an instruction reads and writes, which memory it works on, how many bytes it
 * moves and how it prints.  Numbering, offload, memory planning, verify, fusion, the simulator and
 * the listing know no act by name; they ask the row.  A new act is a row (act_table.h) and its work
 * in each executor. */
#ifndef SK_PROGRAM_ACTS_H
#define SK_PROGRAM_ACTS_H

#include "base/strings.h"
#include "program/program.h"

/* What an instruction does to an operand. */
enum {
    SK_READS = 1,
    SK_WRITES = 2,
    SK_PART = 4,  /* it writes a part: the buffer is not complete yet */
    SK_HOLDS = 8, /* others may use the operand until the instruction that frees it */
    SK_FREES = 16,
    SK_BESIDE = 32 /* a read that may overlap with reads by others: a copy in flight */
};

/* Called for each operand: `buf` points at its number in the program, which a pass that owns the
 * program may change. */
typedef void sk_visit(void *ctx, int *buf, unsigned how);

typedef struct sk_act_row {
    const char *name;
    /* NULL: in[] is read, out[] is written, and read too where it is added to */
    void (*operands)(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx);
    int64_t (*bytes)(const sk_program *p, const sk_inst *in);         /* NULL: of all operands */
    double (*work)(const sk_program *p, const sk_inst *in);           /* NULL: in->flops */
    void (*print)(sk_out *o, const sk_program *p, const sk_inst *in); /* NULL: out <- in */
    bool plain; /* works on its operands alone, on the device, synchronously */
    bool host;  /* works on the host if its first operand is offloaded */
    bool moves; /* communication: no work of the device */
} sk_act_row;
extern const sk_act_row sk_act_rows[SK_N_ACTS];

static inline const sk_act_row *sk_act_row_of(const sk_inst *in) { return &sk_act_rows[in->act]; }

/* All operands of an instruction: in[], out[], workspace, segments of calls, and operands that have
 * no field (STATS reads sums and gradients). */
void sk_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx);

/* Does one of the two write what the other reads or writes?  Then their order matters. */
bool sk_insts_depend(const sk_program *p, const sk_inst *a, const sk_inst *b);

/* n instructions from `from` on move up to `to`, before the one that is there, within a section.
 * They become instructions of that task (task, unit, micro, layer, phase, work are those of the
 * instruction at `to`), as later passes go by these: waits.c ends calls with their task, offload
 * keeps buffers through a layer, the simulator and traces count layers. */
void sk_insts_move(sk_program *p, sk_arena *tmp, int from, int n, int to);

/* Bytes of memory that an instruction reads and writes; 0 of communication. */
int64_t sk_inst_bytes(const sk_program *p, const sk_inst *in);

/* What an instruction keeps a processor busy with, in flops: those of the model, in->flops, and
 * work that is none of them (encoding). */
double sk_inst_work(const sk_program *p, const sk_inst *in);

/* The memory that an instruction works on; only after buffers have their placement. */
sk_placement sk_inst_memory(const sk_program *p, const sk_inst *in);

/* "name[2,3]@40, ...": up to n operands, -1 ends the list. */
void sk_print_operands(sk_out *o, const sk_program *p, const int *v, int n);

/* By buffer, parts counted as their whole: the steps of a synchronisation in which it is used, and
 * in no others; steps 0: there is no such restriction.  Are two of these never in one step? */
sk_step_due *sk_buffer_turns(const sk_program *p, sk_arena *a);
bool sk_turns_differ(const sk_step_due *x, const sk_step_due *y);

#endif
