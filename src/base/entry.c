/* entry.c - see entry.h. */
#include "base/entry.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain; /* NULL where there was no memory for it: then the caller's stays */

static void make(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

sk_entry sk_enter(void)
{
    sk_entry e;
    pthread_once(&once, make);
    e.locale = uselocale(plain);
    fegetenv(&e.floats);
    fesetenv(FE_DFL_ENV);
    return e;
}

void sk_leave(sk_entry *e)
{
    uselocale(e->locale);
    fesetenv(&e->floats);
}
