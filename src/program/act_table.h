/* act_table.h - every instruction: SK_ACT(NAME, members of its sk_act_row).
 *
 * program.h makes SK_DO_NAME of a row, acts.c the row itself (acts.h); functions that a row names
 * are in acts.c.  in[] and out[] are the operands of the instruction, sk_inst.  A new act is a row
 * here and its work in each executor.  Read more than once, so without a guard. */

/* fill out[0] from the data: an input of the graph */
SK_ACT(LOAD, .name = "load", .plain = true)
/* node on in[] -> out[] */
SK_ACT(OP, .name = "op", .plain = true, .bytes = op_bytes, .print = print_op)
/* out[0] = the part of in[0] that its box says */
SK_ACT(SLICE, .name = "slice", .plain = true, .bytes = slice_bytes)
/* the part of out[0] that the box of in[0] says = in[0] */
SK_ACT(PASTE, .name = "paste", .operands = paste_operands, .plain = true, .bytes = paste_bytes)
/* out[0] += in[0] */
SK_ACT(ADD, .name = "add", .operands = add_operands, .plain = true)
/* out[0] = 0 */
SK_ACT(ZERO, .name = "zero", .plain = true)
/* start a call: a collective */
SK_ACT(START, .name = "start", .operands = start_operands, .moves = true, .print = print_call)
/* wait for the call */
SK_ACT(WAIT, .name = "wait", .operands = wait_operands, .moves = true, .print = print_call)
/* send in[0] to a rank of another stage */
SK_ACT(SEND, .name = "send", .moves = true, .print = print_send)
/* receive out[0] from a rank of another stage */
SK_ACT(RECV, .name = "recv", .moves = true, .print = print_recv)
/* the first `sent` sends of this step to peer have arrived */
SK_ACT(SENT, .name = "sent", .moves = true, .print = print_sent)
/* out[0] = {squared gradients, sums of the graph, reduction blocks of the loss}, as this rank has
 * them; out[1]: squared gradients as an exact number, in deterministic order */
SK_ACT(STATS, .name = "stats", .operands = stats_operands, .bytes = stats_bytes)
/* sync=backup: with the gradients of this rank the step may be complete; then the sums of the graph
 * and the gradients of all parameters are those of the ranks that came first.  A rank that comes
 * later ends the step here */
SK_ACT(COMMIT, .name = "commit", .operands = commit_operands, .bytes = commit_bytes,
       .print = print_commit)
/* sync=ssp: weights and state of the optimizer are the newest that some rank has */
SK_ACT(PULL, .name = "pull", .operands = pull_operands, .bytes = pull_bytes, .print = print_newest)
/* the same, and nobody else changes them up to the end of the step: this rank updates them */
SK_ACT(PUSH, .name = "push", .operands = pull_operands, .bytes = pull_bytes, .print = print_newest)
/* from in[0], in[1]: loss, norm, and the factor for gradients; in[2]: what SUMSQ added up, or -1.
 * With replicas these are of one replica, and in[3], in[4] those of all, for loss and norm */
SK_ACT(CLIP, .name = "clip", .print = print_clip)
/* one pass of the optimizer over this rank's shard of one parameter: in[] gradient, sums of the
 * pass before, state, scalars (SK_IN_SCALARS); out[] weights, sums of this pass, master */
SK_ACT(UPDATE, .name = "update", .operands = update_operands, .host = true, .print = print_update)
/* the average out[0] of a parameter takes in its shard in[0], as it is after the update */
SK_ACT(AVERAGE, .name = "average", .operands = add_operands, .host = true)
/* out[0] = in[0], a shard of a parameter, predicted `delay` updates ahead; in[] as of an update */
SK_ACT(AHEAD, .name = "ahead")
/* wait until the updates in the background are done */
SK_ACT(JOIN, .name = "join", .operands = join_operands)
/* out[0] = in[0], weights from their master or from their average */
SK_ACT(NARROW, .name = "narrow", .host = true)
/* out[0] = the gradient in[0], scaled: for the update of the next step */
SK_ACT(PEND, .name = "pend", .host = true)
/* squares of an offloaded gradient, for the next STATS */
SK_ACT(SQUARES, .name = "squares", .host = true)
/* out[0] = in[0], new state of a whole matrix; in a skipped step nothing */
SK_ACT(KEEP, .name = "keep")
/* out[] = sums of in[], each times a number (kernel/combine.h); an output may be an input */
SK_ACT(COMBINE, .name = "combine")
/* out[0] += the squares of in[0], a gradient of `param`, if this rank counts them */
SK_ACT(SUMSQ, .name = "sumsq", .operands = add_operands, .plain = true)
/* start to copy in[0] to out[0], in another memory; copies are done in the order of their starts */
SK_ACT(COPY, .name = "copy", .operands = copy_operands, .moves = true, .print = print_copy)
/* wait until that copy is done */
SK_ACT(COPIED, .name = "copied", .operands = copied_operands, .moves = true, .print = print_copy)
/* out[0] = in[0] in fewer bits: one bit an element, set where it is not 0, and space for `values`
 * such elements; with values 0, the bit is set where the element is above 0 */
SK_ACT(PACK, .name = "pack", .bytes = pack_bytes)
/* out[0] = what was packed; with values 0, each element is 1 or 0 */
SK_ACT(UNPACK, .name = "unpack")
/* out[0] = in[0] row by row, as bytes.  Error feedback: in[1] is the error so far, added to in[0]
 * before it is encoded; out[1], the same buffer, is the error now.  adds_error: in[1] is not added
 * to in[0], and the error now is added to it */
SK_ACT(ENCODE, .name = "encode", .work = encode_work, .print = print_encode)
/* out[0] = the sum of `pieces` encoded shards in in[0], in their order */
SK_ACT(DECODE, .name = "decode", .work = decode_work, .print = print_decode)
/* out[0] = the products of all pairs of the `pieces` gradients in in[0], one behind the other */
SK_ACT(PRODUCTS, .name = "products", .bytes = products_bytes)
/* out[0] = the `pieces` gradients in in[0] joined by Adasum, times `pieces`; in[1]: products */
SK_ACT(ADASUM, .name = "adasum")
