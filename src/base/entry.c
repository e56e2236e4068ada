/* entry.c - see entry.h. */
#include "base/entry.h"

#include <pthread.h>
#include <stdint.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain; /* NULL where there was no memory for it: then the caller's stays */

static void make(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* In registers of the thread, which fesetenv sets back. */
static void flush_subnormals(void)
{
#if defined(__x86_64__)
    enum { DAZ = 1 << 6, FTZ = 1 << 15 }; /* of operands, of results */
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | DAZ | FTZ);
#elif defined(__aarch64__)
    uint64_t fpcr; /* bit 24: both */
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | UINT64_C(1) << 24));
#endif
}

sk_entry sk_enter(void)
{
    sk_entry e;
    pthread_once(&once, make);
    e.locale = uselocale(plain);
    fegetenv(&e.floats);
    fesetenv(FE_DFL_ENV);
    flush_subnormals();
    return e;
}

void sk_leave(sk_entry *e)
{
    uselocale(e->locale);
    fesetenv(&e->floats);
}
