/* status.h - how a function in skein says no.
 *
 * A doer returns sk_status; 0 is success.  The function that first knows what
 * went wrong calls sk_fail() with a sentence for the person at the terminal:
 * the thing, what was found, what was needed, a hint.  Everyone above only adds
 * where it passed, with SK_TRY().  Nobody prints: main() prints the whole error report
 * once, with the rank in front.
 *
 * A sentence is one line: an argument's newline, as of a value or a file's name, is shown as "\n".
 * A report that has several lines is made first, and then fails with the format "%s" alone.
 *
 * The value of a status is the exit code of the process, so that the first to
 * know also decides how the job ends.  sk_assert() is for bugs in skein itself
 * and is always on; a user's mistake never reaches it. */
#ifndef SK_BASE_STATUS_H
#define SK_BASE_STATUS_H

#ifdef __cplusplus /* kernels in .cu files are C++ to the compiler */
extern "C" {
#endif

typedef enum sk_status {
    SK_OK = 0,
    SK_EUSAGE = 64,  /* the command line */
    SK_EDATA = 65,   /* a data file or checkpoint is not what it must be */
    SK_EPEER = 69,   /* another rank or host failed first */
    SK_EBUG = 70,    /* skein is wrong */
    SK_ECREATE = 73, /* cannot create, or somebody else holds it */
    SK_EIO = 74,     /* a file or device said no */
    SK_ESTOP = 75,   /* asked to stop; state is saved: resume me */
    SK_ECONF = 78,   /* the model, layout or config asks for something impossible */
    SK_ENUM = 79,    /* numbers went bad and the policy says stop */
} sk_status;

#define SK_TEXT_(x) #x
#define SK_TEXT(x)  SK_TEXT_(x)
#define SK_HERE     __FILE__ ":" SK_TEXT(__LINE__) /* "src/run/run.c:88", a constant */

#define sk_fail(code, ...) sk_fail_at((code), SK_HERE, __VA_ARGS__)

#define SK_TRY(call)                            \
    do {                                        \
        sk_status st_ = (call);                 \
        if (st_) return sk_trail(st_, SK_HERE); \
    } while (0)

#define sk_assert(cond) ((cond) ? (void)0 : sk_bug(SK_HERE, #cond))

sk_status sk_fail_at(sk_status code, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
sk_status sk_trail(sk_status code, const char *where);
void sk_bug(const char *where, const char *what) __attribute__((noreturn));

/* The last failure on this thread: the sentence, then one "at file:line" per
 * frame it came through.  Empty if nothing failed.  sk_error_line() is the
 * sentence alone; sk_error_set() adopts an error report of another thread or rank. */
const char *sk_error(void);
const char *sk_error_line(void);
void sk_error_set(const char *report);

#ifdef __cplusplus
}
#endif

#endif
