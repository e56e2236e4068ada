/* buffer_layout.h - where the chunks of a call lie; private to coll/.
 *
 * Computed from a compiled schedule and the shapes of a call alone: sk_coll_workspace() when a
 * program is planned and sk_execute_begin() when it runs find the same numbers.  The workspace of a
 * call in the heap:
 *
 *     outbox | cells of SK_TMP | staging | a dense chunk, for streams | SRC, if packed | DST, if
 *     packed
 *
 * The outbox holds one note per send of the list (execute_message.c).  Staging is where a wire
 * receives what is to be added, where cells that are not in a row are put together for a wire, and
 * where streams are put together and added.
 *
 * Where an algorithm `packs`, every cell of SRC, DST and TMP is a stream (coll/sparse_stream.h)
 * with room for all rows that the members may have together; a message is the streams of its cells,
 * one behind the other (execute_stream.c). */
#ifndef SK_COLL_BUFFER_LAYOUT_H
#define SK_COLL_BUFFER_LAYOUT_H

#include "coll/compiled_schedule.h"
#include "coll/segment.h"

enum { SK_NOTE_BYTES = 64 };

typedef struct sk_buffer_layout {
    sk_coll_kind kind;
    int p, me, cells;
    int64_t size, row; /* bytes of an element; elements of a row (for streams) */
    int64_t largest;   /* bytes of the largest chunk: the distance of cells in SK_TMP */
    int64_t total;     /* bytes of all chunks */
    int64_t *at;       /* [cells + 1] where chunks begin; NULL where they have one size */
    int64_t stride;    /* bytes of a cell of the staging buffer, and of all that are streams */
    bool src_packed, dst_packed;
    bool src_is_dst;       /* the copy of SK_SRC in SK_DST serves as both */
    bool src_row, dst_row; /* streams: what is packed is in a row at the caller's */
    int64_t tmp, staging, chunk, src, dst,
        bytes; /* where the parts of the workspace begin; all of it */
} sk_buffer_layout;

/* at: [cells + 1] numbers to fill.  rows: of the call.  placed: src and dst of the segments are
 * known; without them the layout holds for the worst places. */
void sk_buffer_layout_make(const sk_compiled_schedule *s, sk_dtype type, const sk_seg *segs,
                           int n_segs, int64_t rows, bool placed, int64_t *at,
                           sk_buffer_layout *out);

/* Which members' chunks a buffer holds. */
bool sk_buffer_layout_is_part(sk_coll_kind kind, sk_space space);
/* Bytes of n cells in a row from this chunk on. */
int64_t sk_buffer_layout_span(const sk_buffer_layout *s, int chunk, int n);
/* Bytes of everything in SK_SRC or SK_DST. */
int64_t sk_buffer_layout_bytes(const sk_buffer_layout *s, sk_space space);

typedef enum sk_pack_direction { SK_PACK, SK_UNPACK } sk_pack_direction;
/* Between the segments in the heap at base and cells in a row at `cells`. */
void sk_buffer_layout_pack(const sk_buffer_layout *s, const sk_seg *segs, int n_segs,
                           sk_space space, sk_pack_direction way, char *base, char *cells);
/* One chunk of them, dense, at `chunk`. */
void sk_buffer_layout_pack_chunk(const sk_buffer_layout *s, const sk_seg *segs, int n_segs,
                                 sk_space space, sk_pack_direction way, char *base, int i,
                                 char *chunk);

#endif
