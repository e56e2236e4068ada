/* skein.h - skein inside another program.
 *
 * Everything that the program `skein` can do is a command: words go in, an exit
 * code comes out, results are files and lines on standard output.  The library
 * offers the same and no second way of saying it:
 *
 *     const char *words[] = {"train", "model=tiny", "train.steps=20", "run=runs/mine"};
 *     int code = sk_command(4, words);
 *     if (code) fprintf(stderr, "%s\n", sk_error_line());
 *
 * The words are those of the command line without the program's name; `skein
 * --help` and `skein COMMAND --help` tell them, and a list of one word "--help"
 * tells them here.  Compile and link with what `pkg-config --cflags --libs skein`
 * says; skein-cuda instead of skein brings the kernels for GPUs too.
 *
 * Codes are the exit codes of the program, see doc/errors.md:
 *
 *      0  done                                  73  cannot create, or somebody holds it
 *     64  wrong words                           74  a file or device said no
 *     65  data or checkpoint is damaged         75  stopped and saved: resume
 *     69  another rank failed first             78  model, layout and config do not go together
 *     70  skein is wrong: please report         79  numbers went bad
 *
 * What the library does not do, and the program does: it does not print the
 * story of a failure, it leaves signals alone but while it trains, and it does not
 * start itself again when an old OpenBLAS does not know the processor (set
 * OPENBLAS_CORETYPE for that) or address space is limited (OPENBLAS_NUM_THREADS=1).
 *
 * Standard input, output and error that are closed are opened on /dev/null and stay so: no file
 * of a command may get their numbers.
 *
 * One command at a time in a process.  `train` makes its ranks by fork(): call
 * it before other threads run, or add the word "--launch=thread".  While it
 * trains, SIGINT, SIGTERM, SIGHUP and SIGUSR1 mean "save and stop", SIGPIPE and
 * SIGXFSZ are ignored; afterwards they mean again what they meant before.  A bug in skein ends the
 * process by abort(); a mistake in the words, files or data never does. */
#ifndef SKEIN_H
#define SKEIN_H

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
const char *sk_version(void);

/* Run one command; 0 is success.  The words are copied. */
int sk_command(int n_words, const char *const words[]);

/* Why the last command of this thread failed: one sentence, or the sentence with the places in
 * skein's source that it came through.  "" after a success.  Valid until the next command. */
const char *sk_error_line(void);
const char *sk_error(void);

#ifdef __cplusplus
}
#endif

#endif
