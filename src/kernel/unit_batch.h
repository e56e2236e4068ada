/* unit_batch.h - which dim of unit's operand counts matrices: the one whose letter has no '!'. */
#ifndef SK_KERNEL_UNIT_BATCH_H
#define SK_KERNEL_UNIT_BATCH_H

static inline int sk_unit_batch(const char *dims) /* -1: none */
{
    for (int d = 0; *dims && *dims != '-'; d++, dims += 2)
        if (dims[1] != '!') return d;
    return -1;
}

#endif
