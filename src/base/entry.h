/* entry.h - what the caller's thread has set, and skein needs otherwise.
 *
 * A program that uses the library may have a locale whose decimal point is a comma, and may round
 * upwards or trap floating-point exceptions.  Numbers in files and on command lines have a point,
 * and bits of results must not depend on the caller.  So every function of skein.h that reads,
 * writes or computes numbers begins with
 *
 *     SK_ENTER;
 *
 * which sets the C locale and the default floating-point environment for this thread until the
 * function returns.  Subnormal numbers (below 1.2e-38 in f32) are zero in this environment, as GPU
 * kernels are compiled to take them (-ftz): moments of weights that get no gradient decay until
 * they are subnormal and would stay so, outputs of GELU are often subnormal, and every vector of
 * a CPU that holds one costs about 150 cycles.  A new thread inherits the floating-point
 * environment of its parent, but not the locale: threads that write text enter too. */
#ifndef SK_BASE_ENTRY_H
#define SK_BASE_ENTRY_H

#include <fenv.h>
#include <locale.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_entry { /* as the caller had it */
    locale_t locale;
    fenv_t floats;
} sk_entry;

sk_entry sk_enter(void);
void sk_leave(sk_entry *e);

#define SK_ENTER __attribute__((cleanup(sk_leave), unused)) sk_entry entry_ = sk_enter()

#ifdef __cplusplus
}
#endif

#endif
