/* search_report.h - `skein plan --search`: the search for a layout, its result and the reason. */
#ifndef SK_CLI_SEARCH_REPORT_H
#define SK_CLI_SEARCH_REPORT_H

#include "train/auto_layout.h"

/* "30s", "2m": time; "500": layouts. */
sk_status sk_search_limit(const char *text, sk_auto_in *in);
/* Text, or a table in csv, json or md. */
sk_status sk_search_print(sk_arena *a, const sk_auto_in *in, const sk_search_out *found,
                          const char *format);

#endif
