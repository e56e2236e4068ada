/* proc.h - what the kernel says about this host, from its text files. */
#ifndef SK_BASE_PROC_H
#define SK_BASE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The rest of the first line that begins with key, without ':' and blanks; false if there is none.
 */
bool sk_proc_line(const char *path, const char *key, char *to, size_t n);

/* The number on that line times unit; INT64_MAX if there is none or it does not fit ("max"). */
int64_t sk_proc_number(const char *path, const char *key, int64_t unit);

/* Bytes of memory: of the host, and what can be had now; both bounded by the control group. */
int64_t sk_proc_memory(void);
int64_t sk_proc_available(void);
/* Bytes of address space that this process may still take (ulimit -v); INT64_MAX: any. */
int64_t sk_proc_space(void);

/* Files that this process may have open; raises ulimit -n as far as it may be, if `need` is more.
 */
int64_t sk_proc_files(int64_t need);

int sk_proc_cores(void); /* that this process may use */

/* Standard streams that are closed are opened on /dev/null the wrong way round, so that no other
 * file gets their numbers and their use fails as before. */
void sk_proc_streams(void);

/* Is this a terminal that moves its cursor (not TERM=dumb, as of an editor); may it be painted? */
bool sk_proc_screen(int fd);
bool sk_proc_colour(int fd); /* a screen, and NO_COLOR is not set: no-color.org */

/* Seconds since main() began, in the image before a restart by sk_proc_restart() if there was
 * one; 0 if sk_proc_begin() was never called. */
void sk_proc_begin(void);
void sk_proc_restart(char **argv); /* this program again; returns only if that failed */
double sk_proc_age(void);

#ifdef __cplusplus
}
#endif

#endif
