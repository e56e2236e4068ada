/* text.c - layouts as words: two forms that mean the same, there and back, and an error message for
 * every way to get it wrong. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "base/rng.h"
#include "layout/word.h"

#include <stdlib.h>

static sk_arena arena;

static bool same_layout(const sk_layout *a, const sk_layout *b)
{
    bool same = a->mesh.n == b->mesh.n && a->shard == b->shard && a->shard_axis == b->shard_axis &&
                a->shard_second == b->shard_second && a->stage_axis == b->stage_axis &&
                !strcmp(a->schedule, b->schedule) && a->n_micro == b->n_micro &&
                a->replica == b->replica && a->overlap == b->overlap &&
                !strcmp(a->recompute, b->recompute) && a->recompute_blocks == b->recompute_blocks &&
                a->prefetch == b->prefetch && a->tiles == b->tiles &&
                !memcmp(a->home, b->home, sizeof a->home) && a->partition == b->partition &&
                a->keep == b->keep && a->keep_cheap == b->keep_cheap &&
                !strcmp(a->keep_ops, b->keep_ops) && a->gist == b->gist &&
                !strcmp(a->weights_as, b->weights_as) && !strcmp(a->grads_as, b->grads_as) &&
                a->feedback == b->feedback && a->copy == b->copy && a->slices == b->slices;
    for (int i = 0; same && i < a->mesh.n; i++)
        same = !strcmp(a->mesh.name[i], b->mesh.name[i]) && a->mesh.size[i] == b->mesh.size[i] &&
               !strcmp(a->split[i], b->split[i]);
    return same;
}

/* --- both forms --- */

static const struct {
    const char *brief, *full;
} both_forms[] = {
    {"", "mesh dp=1"},
    {"dp=2", "mesh dp=2; split b over dp"},
    {"tp=4", "mesh tp=4; split h f v over tp"},
    {"tp=4", "mesh tp=4\nsplit h over tp\nsplit f over tp\nsplit v over tp\n"},
    {"tp=2", "mesh tp=2\n\n  split hfv over tp   # letters may stand together\n"},
    {"pp=2", "mesh pp=2; stages over pp"},
    {"pp=2 schedule=gpipe micro=4", "mesh pp=2; stages over pp schedule gpipe micro 4"},
    {"pp=4 layers=7+8+8+7", "mesh pp=4; stages over pp layers 7+8x2+7"},
    {"pp=4 layers=auto micro=8", "mesh pp=4; stages over pp layers auto micro 8"},
    {"pp=2 schedule=gpipe micro=4", "mesh pp=2; stages over pp micro 4 schedule gpipe"},
    {"dp=2 micro=3", "mesh dp=2; split b over dp; micro 3"},
    {"dp=2 schedule=gpipe", "mesh dp=2; split b over dp; schedule gpipe"},
    {"dp=2 tp=2 pp=2", "mesh pp=2 dp=2 tp=2; split b over dp; split h f v over tp; stages over pp"},
    {"tp2=3 tp=2", "mesh tp2=3 tp=2; split c over tp2; split h f v over tp"},
    {"dp=2 tp=3 order: tp dp", "mesh tp=3 dp=2; split h f v over tp; split b over dp"},
    {"dp=2 tp=3 order: tp", "mesh tp=3 dp=2; split h f v over tp; split b over dp"},
    {"dp=4 zero=1", "mesh dp=4; split b over dp; shard state over dp"},
    {"dp=4 zero=2", "mesh dp=4; split b over dp; shard grads over dp"},
    {"dp=4 zero=3", "mesh dp=4; split b over dp; shard params over dp"},
    {"dp=4 cp=2 zero=3:dp+cp",
     "mesh dp=4 cp=2; split b over dp; split t over cp; shard params over dp cp"},
    {"dp=4 cp=2 zero=1:cp+dp",
     "mesh dp=4 cp=2; split b over dp; split t over cp; shard state over cp, dp"},
    {"dp=4,zero=3", "mesh dp=4; split b over dp; shard params over dp"},
    {"zero=3", "mesh dp=1; split b over dp; shard params over dp"},
    {"dp=4 replica",
     "mesh dp=4; split b over dp; shard state over dp; one copy of weights per host"},
    {"replica dp=4 zero=2",
     "mesh dp=4; split b over dp; one copy of weights per host; shard grads over dp"},
    {"mesh dp=4; split b over dp; replica", "dp=4 replica zero=1"},
    {"mesh a=4; shard grads over a; replica",
     "mesh a=4; shard grads over a; one copy of weights per host"},
    {"tp=2 replica", "tp=2 zero=1 replica"},
    {"dp=2 gist", "mesh dp=2; split b over dp; encode kept results"},
    {"dp=2 gist=60", "mesh dp=2; split b over dp; encode kept results in 60 percent"},
    {"dp=2 gist=100", "dp=2 gist"},
    {"dp=2 gist=none", "dp=2"},
    {"dp=4 cp=1 ep=1 sp=none recompute=none offload=none",
     "mesh dp=4 cp=1 ep=1; split b over dp; split t over cp; split b e over ep # 1 asks for "
     "nothing; and this is a comment"},
    {"dp=2 tp=2 pp=2 zero=3 micro=8 schedule=1f1b order: pp dp tp",
     "mesh pp=2 dp=2 tp=2\nsplit b over dp\nsplit h f v over tp\nshard params over dp\n"
     "stages over pp schedule 1f1b micro 8"},
    {"dp=1k", "mesh dp=1000; split b over dp"},
    {"dp=2 recompute=full", "mesh dp=2; split b over dp; recompute full"},
    {"dp=2 recompute=selective", "mesh dp=2; split b over dp; recompute selective"},
    {"dp=2 recompute=3", "mesh dp=2; split b over dp; recompute 3 blocks"},
    {"dp=2 recompute=attention", "mesh dp=2; split b over dp; recompute attention"},
    {"dp=2 offload=state", "mesh dp=2; split b over dp; offload state to host"},
    {"offload=state+grads:file", "mesh dp=1; offload state to host; offload grads to file"},
    {"offload=all:file prefetch=3",
     "mesh dp=1; offload state weights grads acts to file; gather weights 3 ahead"},
    {"offload=weights+state tiles=4",
     "mesh dp=1; offload state weights to host; weights in 4 tiles"},
    {"tp=2 recompute=full partition",
     "mesh tp=2; split h f v over tp; recompute full; keep results in pieces"},
    {"dp=2 keep=cheap", "mesh dp=2; split b over dp; keep cheap results"},
    {"dp=2 keep=bias_gelu+layernorm",
     "mesh dp=2; split b over dp; keep results of bias_gelu+layernorm"},
    {"dp=2 zero=3 keep keep=cheap",
     "mesh dp=2; split b over dp; shard params over dp; keep gathered weights; keep cheap results"},
    {"dp=2 zero=3 weights=int8",
     "mesh dp=2; split b over dp; shard params over dp; encode weights as "
     "int8"},
    {"dp=4 grads=int4 feedback",
     "mesh dp=4; split b over dp; encode gradients as int4 with feedback"},
    {"dp=4 grads=topk:0.01 feedback",
     "mesh dp=4; split b over dp; encode gradients as topk:0.01 with feedback"},
    {"dp=4 zero=3 weights=fp8 grads=f16 copy=2",
     "mesh dp=4; split b over dp; shard params over dp; encode weights as fp8; encode gradients as "
     "f16; second copy of weights over 2 ranks"},
    {"dp=2 slices=8", "mesh dp=2; split b over dp; results in 8 slices"},
    {"tp=2 sp overlap=4", "mesh tp=2; split h f v t over tp; overlap in 4 chunks"},
};

static void forms(void)
{
    for (size_t i = 0; i < sizeof both_forms / sizeof *both_forms; i++) {
        sk_layout a = {0}, b = {0}, c = {0};
        check(!sk_layout_read(both_forms[i].brief, 0, &a));
        check(!sk_layout_read(both_forms[i].full, 0, &b));
        bool same = same_layout(&a, &b);
        if (!same) printf("\"%s\" and \"%s\" differ\n", both_forms[i].brief, both_forms[i].full);
        check(same);
        char *text = sk_layout_print(&arena, &a);
        check(!sk_layout_read(text, sk_mesh_ranks(&a.mesh), &c));
        same = same_layout(&a, &c);
        if (!same) printf("\"%s\" comes back from\n%s", both_forms[i].brief, text);
        check(same);
        check(!strcmp(text, sk_layout_print(&arena, &c)));
    }
}

static void names(void)
{
    sk_layout l;
    check(!sk_layout_read("mesh a=2 left=3; split b over a; split h f over left", 6, &l));
    check(sk_mesh_axis(&l.mesh, "left") == 1 && sk_layout_splits(&l, 1, 'f'));
    check(!sk_layout_splits(&l, 0, 'f') && sk_mesh_axis(&l.mesh, "right") < 0);
    check(!sk_layout_read("mesh z=2; dp=2", 4, &l)); /* letters only for what short words name */
    check(l.mesh.n == 2 && !l.split[0][0] && !strcmp(l.split[1], "b"));
    check(!sk_layout_read("mesh pp=2; micro=2", 2, &l));
    check(l.stage_axis < 0 && l.n_micro == 2);
    check(!sk_layout_read("dp=2 tp=4", 8, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "dp 2 · tp 4"));
    check(!sk_layout_read("dp=1", 1, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "1 rank"));
    check(!strcmp(sk_layout_title(&arena, &l), "1 rank"));
    check(!sk_layout_read("pp=2 dp=2 zero=2 micro=4", 4, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "pp 2 · dp 2 · zero 2 · micro 4 · 1f1b"));
    check(!sk_layout_read("dp=2 replica", 2, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "dp 2 · zero 1 · replica"));
    check(!sk_layout_read("tp=2 recompute=full partition keep=cheap", 2, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "tp 2 · recompute full · partition · keep cheap"));
    check(!sk_layout_read("keep=cheap", 1, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "keep cheap"));
    check(!sk_layout_read("keep=bias_gelu+layernorm", 1, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "keep bias_gelu+layernorm"));
    check(!sk_layout_read("gist", 1, &l) && !strcmp(sk_layout_short(&arena, &l), "gist"));
    check(!sk_layout_read("dp=2 gist=60", 2, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "dp 2 · gist 60 %"));
    check(!sk_layout_read("dp=4 zero=3 weights=int8 grads=int4 feedback copy=2", 4, &l));
    check(!strcmp(sk_layout_short(&arena, &l),
                  "dp 4 · zero 3 · weights int8 · grads int4 with feedback · copy over 2"));
    check(!sk_layout_read("dp=2 slices=4 recompute=full", 2, &l));
    check(!strcmp(sk_layout_short(&arena, &l), "dp 2 · slices 4 · recompute full"));
}

/* --- error messages --- */

static const struct {
    const char *text, *words;
    int ranks;
} wrong[] = {
    {"dq=2", "did you mean \"dp\"", 0},
    {"frob", "unknown word \"frob\"", 0},
    {"fsdp", "\"fsdp\" is said here with zero=3", 0},
    {"FSDP=4", "zero=3", 0},
    {"ddp", "dp=N", 0},
    {"hsdp", "mesh r=2 s=4; split b over r; split b over s; shard params over s", 8},
    {"tensor_parallel=2", "tp=N", 0},
    {"--tensor-model-parallel-size=2", "tp=N", 0},
    {"dp=2 use-distributed-optimizer", "zero=1", 0},
    {"tp=2 sequence-parallel", "sp beside tp", 0},
    {"ring_attention=4", "by=ring", 0},
    {"dp=2 activation_checkpointing", "recompute=full", 0},
    {"dp=4 local:8", "with sync, as in \"dp=4 sync=local:8\"", 0},
    {"dp=4 DiLoCo", "dp=4 sync=diloco:50", 0},
    {"dp=4 hogwild", "dp=4 sync=ssp:inf", 0},
    {"dp=4 topk:0.01", "with grads, as in \"dp=4 grads=topk:0.01 feedback\"", 0},
    {"dp=4 powersgd=4", "grads=powersgd:4 feedback", 0},
    {"dp=4 compress=topk", "grads=CODEC", 0},
    {"dp=4 bf16", "unknown word \"bf16\"", 0},
    {"zreo=2", "did you mean \"zero\"", 0},
    {"shedule=gpipe", "did you mean \"schedule\"", 0},
    {"xylophone=2", "unknown word \"xylophone\"", 0},
    {"dp", "needs a value", 0},
    {"dp=", "found \"\"", 0},
    {"dp=0", "from 1 to", 0},
    {"dp=-2", "found \"-2\"", 0},
    {"dp=2.5", "found \"2.5\"", 0},
    {"dp=two", "found \"two\"", 0},
    {"dp=99999999999999999999", "whole number", 0},
    {"dp=2 dp=2", "named twice", 0},
    {"mesh a=2 a=2", "'a' is named twice", 0},
    {"mesh dp=2; dp=2", "'dp' is named twice", 0},
    {"mesh a", "name=size", 0},
    {"mesh =2", "no name for an axis", 0},
    {"mesh averylongaxisname=2", "no name for an axis", 0},
    {"mesh a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1", "more than 8 axes", 0},
    {"dp=1024 tp=1024 pp=2", "over 1048576 ranks", 0},
    {"dp=2 tp=2", "4 ranks, 3 were given", 3},
    {"dp=2", "-n 2", 1},
    {"mesh dp=2; split b over pd", "did you mean 'dp'", 0},
    {"mesh dp=2; split b over x", "no axis 'x'", 0},
    {"mesh dp=2; split over dp", "split LETTERS ... over AXIS", 0},
    {"mesh dp=2; split b dp", "split LETTERS ... over AXIS", 0},
    {"mesh dp=2; split b over dp now", "split LETTERS ... over AXIS", 0},
    {"mesh dp=2; split 7 over dp", "is no letter", 0},
    {"mesh dp=2; shard params", "shard state|grads|params over AXIS", 0},
    {"mesh dp=2; shard weights over dp", "cannot shard \"weights\"", 0},
    {"dp=2 cp=2 zero=1:dp+cq", "no axis 'cq' (did you mean 'cp'?)", 0},
    {"dp=2 cp=2 zero=1:dp+dp", "shards over 'dp' twice", 0},
    {"mesh a=2 b=2 c=2; split b over a; split b over b; split t over c; shard state over a b c",
     "three axes, the third is 'c'", 0},
    {"dp=2 tp=2 zero=1:dp+tp", "the batch or time alone, and 'tp' splits \"hfv\"", 0},
    {"dp=2 cp=2 zero=3:dp+cp copy=2", "shards over two axes do not go with copy", 0},
    {"dp=2 cp=2 zero=3:dp+cp grads=int8", "shards over two axes do not go with grads", 0},
    {"dp=2 cp=2 zero=4:dp+cp", "from 0 to 3", 0},
    {"mesh dp=2; shard params over tp", "no axis 'tp'", 0},
    {"mesh pp=2; stages over pp; shard params over pp", "which holds stages", 0},
    {"mesh pp=2; stages over pp; split b over pp", "cannot split letters too", 0},
    {"mesh pp=2; stages", "stages over AXIS", 0},
    {"mesh pp=2; stages over pp fast yes", "knows no \"fast\"", 0},
    {"mesh pp=2; stages over pp micro", "stages over AXIS", 0},
    {"mesh pp=2; micro", "micro N", 0},
    {"mesh pp=2; schedule", "schedule NAME", 0},
    {"dp=2 zero=3 weights=int8 weights=int4", "said twice", 0},
    {"dp=2 zero=3 weights=", "no name for a codec", 0},
    {"dp=2 grads=averyverylongnameforacodec", "no name for a codec", 0},
    {"dp=2 weights=int8", "use zero=3", 0},
    {"dp=2 feedback", "use grads=int4", 0},
    {"tp=2 grads=int4", "no axis splits it; use dp=2", 0},
    {"mesh pp=2; stages over pp; encode gradients as int8", "no axis splits it; use dp=2", 0},
    {"mesh dp=2 tp=2; split b over dp; split h over tp; shard state over tp; grads=int4",
     "'tp', which shards, and it splits neither batch nor time; use dp=2", 0},
    {"dp=2 feedback=2 grads=int4", "takes no value", 0},
    {"dp=2 copy=2", "use zero=3", 0},
    {"dp=4 zero=3 copy=3", "that divides 4", 0},
    {"mesh dp=2; encode activations as int8", "encode weights as CODEC", 0},
    {"mesh dp=2; encode gradients as int8 with care", "encode weights as CODEC", 0},
    {"mesh dp=2; second copy", "second copy of weights over N ranks", 0},
    {"dp=2 micro=0", "'micro' needs a whole number", 0},
    {"dp=2 recompute=0", "'recompute' needs a whole number", 0},
    {"dp=2 recompute", "begins a sentence", 0},
    {"dp=2 recompute=full; recompute full", "'recompute' is said twice", 0},
    {"dp=2 recompute=none recompute=full", "'recompute' is said twice", 0},
    {"mesh dp=2; recompute", "\"recompute\" reads", 0},
    {"tp=2 overlap=0", "'overlap' needs a whole number", 0},
    {"tp=2 overlap=2; overlap in 2 turns", "'overlap' is said twice", 0},
    {"mesh tp=2; overlap 2", "overlap in N chunks", 0},
    {"slices=0", "'slices' needs a whole number", 0},
    {"slices=2 slices=2", "'slices' is said twice", 0},
    {"dp=2 sync=local:2 sync=local:4", "'sync' is said twice", 0},
    {"dp=2 sync=none sync=local:2", "'sync' is said twice", 0},
    {"dp=2 sync=backup:1 sync=none", "'sync' is said twice", 0},
    {"dp=2 sync=local:2; synchronize dp by local:4", "'sync' is said twice", 0},
    {"dp=2 sync=diloco:2:lr=0.1:lr=0.2", "'lr' is said twice", 0},
    {"dp=2 sync=diloco:2:codec=q4:codec=q8", "'codec' is said twice", 0},
    {"dp=2 sync=diloco:2:codec=q4:feedback:feedback", "'feedback' is said twice", 0},
    {"slices=2; results in 2 slices", "'slices' is said twice", 0},
    {"dp=2; results 2", "results in N slices", 0},
    {"dp=2 results", "begins a sentence", 0},
    {"dp=2 slicse=2", "did you mean \"slices\"", 0},
    {"dp=2 overlap=2", "overlap is about products that wait", 0},
    {"cp=2 ep=2 overlap=2", "use tp=2", 0},
    {"dp=2 partition", "use tp=2", 0},
    {"cp=2 partition", "results that several ranks would keep alike", 0},
    {"tp=2 partition=2", "takes no value", 0},
    {"tp=2 partition partition", "'partition' is said twice", 0},
    {"tp=2 partiton=2", "did you mean \"partition\"", 0},
    {"tp=2; keep results", "keep results in pieces", 0},
    {"keep=cheap keep=cheap", "said twice", 0},
    {"keep dp=2", "keep is about weights that are gathered", 0}, /* a flag, not the verb */
    {"keep", "keep is about weights that are gathered", 0},
    {"keep nothing dp=2 zero=3", "unknown word \"nothing\"", 0},
    {"keep nothing", "\"keep\" reads", 0},
    {"keep=", "takes no value", 0},
    {"keep=dear", "'dear' is no op whose results are recomputed", 0},
    {"keep=bias_gelu+contract", "'contract' is no op whose results are recomputed", 0},
    {"keep=bias_gelu keep=layernorm", "said twice", 0},
    {"tp=2 overlpa=2", "did you mean \"overlap\"", 0},
    {"dp=2 zero=4", "from 0 to 3, found \"4\"", 0},
    {"dp=2 zero=-1", "from 0 to", 0},
    {"dp=2 zero=3 replica", "nothing to share", 0},
    {"dp=2 zero=0 replica", "use zero=1 or zero=2", 0},
    {"dp=2 replica=2", "takes no value", 0},
    {"replcia=1", "did you mean \"replica\"", 0},
    {"mesh a=2; replica", "shard state|grads over AXIS", 0},
    {"mesh dp=2; one copy of weights per host", "use zero=1 or zero=2", 0},
    {"mesh dp=2; one copy", "one copy of weights per host", 0},
    {"dp=2 order: tp", "names 'tp', and the line has no tp=N", 0},
    {"dp=2 order:", "no axes are behind \"order:\"", 0},
    {"mesh a=2; split b b over a", "'b' is split over 'a' twice", 0},
    {"mesh a=2; split bb over a", "'b' is split over 'a' twice", 0},
    {"mesh a=2; split b over a; split b over a", "'b' is split over 'a' twice", 0},
    {"dp=2 order: dp qp", "names no axis \"qp\"", 0},
    {"dp=2 order: pp dp cp ep tp2 tp zero=3", "behind \"order:\"", 0},
    {"cp=2 by=gather by=ring", "'by' is said twice", 0},
    {"pp=2; stages over pp", "'pp' is said twice", 0},
    {"dp=2 micro", "or give it a value, as in \"dp=2 micro=4\"", 0},
    {"dp=4 zero=1 zero=2", "'zero' is said twice", 0},
    {"canonical order; offload=weights+state tiles=2", "canonical order with tiles=2", 0},
    {"dp=2 slices=3; canonical order", "canonical order with slices=3", 0},
    {"dp=2 grads=int8; canonical order", "rounds what ranks send", 0},
    {"dp=2 sp=yes", "\"sp\" takes no value", 0},
    {"mesh a=2; split t over a by hand", "gather, exchange or ring", 0},
    {"keep calm", "keep gathered weights", 0},
    {"gather weights soon", "gather weights N ahead", 0},
    {"canonical chaos", "canonical order", 0},
    {"dp=2 cp=2 by=magic", "gather, exchange or ring", 0},
    {"dp=2 offload=stat", "cannot offload \"stat\"", 0},
    {"dp=2 offload=state:tape", "cannot offload to \"tape\"", 0},
    {"dp=2 offload=state+all", "offload names state twice", 0},
    {"dp=2 tiles=2", "say offload=weights+state too", 0},
    {"dp=2 zero=3 offload=all tiles=2", "a rank keeps whole", 0},
    {"weights in tiles", "reads \"weights in N tiles\"", 0},
    {"offload state host", "reads \"offload", 0},
    {"dp=2 replica offload=weights", "leave one of the two out", 0},
    {"dp=2\ntp=2", "put them in one", 0},
    /* said twice: one of them would change nothing */
    {"pp=2 schedule=gpipe schedule=1f1b", "'schedule' is said twice", 0},
    {"pp=2 schedule=gpipe; schedule 1f1b", "'schedule' is said twice", 0},
    {"pp=2 schedule=interleaved chunks=2 chunks=3", "'chunks' is said twice", 0},
    {"cp=2 by=ring by=gather", "'by' is said twice", 0},
    {"mesh a=2; split t over a by ring; split c over a by gather", "'by' is said twice", 0},
    {"dp=2 zero=3 prefetch=2 prefetch=3", "'prefetch' is said twice", 0},
    {"dp=2 zero=3 prefetch=2; gather weights 1 ahead",
     "'prefetch' is said twice (\"gather weights N ahead\" says it, too)", 0},
    {"tp=2 sp sp", "'sp' is said twice", 0},
    {"pp=2 layers=1+1 layers=auto", "'layers' is said twice", 0},
    {"pp=2 layers=1+1 balance", "both say which stage has which layers", 0},
    {"dp=2 layers=1+1", "layers is about the stages of a pipeline", 0},
    {"pp=2 layers=", "the numbers of layers of all stages are needed", 0},
    {"pp=2 layers=1+", "the numbers of layers of all stages are needed", 0},
    {"pp=2 layers=1+x2", "the numbers of layers of all stages are needed", 0},
    {"pp=2 layers=1x0", "the numbers of layers of all stages are needed", 0},
    {"pp=2 layers=-1+3", "the numbers of layers of all stages are needed", 0},
    {"pp=2 layers=1x32769", "the numbers of layers of all stages are needed", 0},
    {"pp=2 layers=1+40000", "the numbers of layers of all stages are needed", 0},
    {"dp=2 replica replica", "'replica' is said twice", 0},
    {"gist gist=60", "'gist' is said twice", 0},
    {"gist=101", "from 1 to 100, found \"101\"", 0},
    {"gist=0", "needs a whole number from 1", 0},
    {"mesh dp=2; encode kept results in 60", "encode kept results in N percent", 0},
    {"dp=2 tp=2 order: tp tp", "'tp' is said twice", 0},
    {"dp=2 mesh a=2", "\"mesh\" begins a sentence", 0},
};

static void error_messages(void)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sk_layout l = {.n_micro = 77};
        sk_status st = sk_layout_read(wrong[i].text, wrong[i].ranks, &l);
        fails(st, SK_ECONF, wrong[i].words);
        if (!st || !strstr(sk_error_line(), wrong[i].words))
            printf("  ^ the layout was \"%s\"\n", wrong[i].text);
        check(l.n_micro == 77); /* set only on success */
    }
    sk_layout l;
    char *many = sk_alloc(&arena, 8000);
    memset(many, 'd', 7999);
    fails(sk_layout_read(many, 0, &l), SK_ECONF, "4000 characters");
    many[3000] = 0;
    fails(sk_layout_read(many, 0, &l), SK_ECONF, "a word of 3000 characters");
    for (int i = 0; i < 200; i++) memcpy(many + 4 * i, "dp ", 4), many[4 * i + 3] = ' ';
    many[800] = 0;
    fails(sk_layout_read(many, 0, &l), SK_ECONF, "64 words");
}

/* What only the compiler can know. */
static void compile_refused(const char *layout, const char *words)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n;
    sk_trial t = {.batch = 2, .seq = 4, .layout = layout};
    t.model = sk_model_preset("tiny", &t.hyper);
    fails(sk_trial_compile(&a, &t, &g, &p, &n), SK_ECONF, words);
    sk_arena_end(&a);
}

static void compile_errors(void)
{
    compile_refused("pp=2 schedule=gpip", "did you mean 'gpipe'");
    compile_refused("dp=2 schedule=zigzag", "no schedule is called 'zigzag'");
    compile_refused("pp=513", "at most 512");
    compile_refused("pp=2 schedule=zb-v chunks=3", "has 2 chunks a stage, not 3");
    compile_refused("pp=2 layers=1+1+0", "has the layers of 3 chunks, and there are 2");
    compile_refused("pp=2 schedule=zb-v layers=1+1", "and there are 4: 2 for each of 2 stages");
    compile_refused("pp=2 layers=1+2", "are 3, and the model has 2");
    compile_refused("pp=2 layers=auto", "a job and its machine choose the numbers");
}

/* --- anything at all --- */

static void noise(void)
{
    static const char *const bits[] = {"dp=2",   "mesh",     "split", "over",   "shard",  "params",
                                       "=",      "tp",       "a=2",   "stages", ";",      "\n",
                                       "order:", "#",        "b",     "micro",  "zero=3", ",",
                                       "\xff",   "schedule", "1e9"};
    enum { N_BITS = sizeof bits / sizeof *bits };
    int read = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        char text[512] = "";
        uint64_t n = sk_rng(5, i, 0).a % 24;
        for (uint64_t k = 1; k <= n; k++) {
            uint64_t x = sk_rng(5, i, k).a;
            size_t len = strlen(text);
            if (i % 2) text[len] = (char)(1 + x % 255);
            else snprintf(text + len, sizeof text - len, "%s ", bits[x % N_BITS]);
        }
        sk_layout l, m;
        sk_status st = sk_layout_read(text, 0, &l);
        if (st && st != SK_ECONF) check_at(SK_HERE, false, "a layout fails with SK_ECONF alone");
        if (st) continue;
        read++;
        char *out = sk_layout_print(&arena, &l);
        bool back = !sk_layout_read(out, 0, &m);
        if (!back) printf("\"%s\" was read and comes back as\n%s", text, out);
        check(back);
    }
    check(read > 20); /* some of it means something */
}

/* Words together, as many as there are: what is printed says all of it, in any mix. */
static void together(void)
{
    static const char *const words[] = {
        "weights=int8", "grads=int4",       "feedback",     "copy=2",
        "slices=3",     "partition",        "gist=60",      "keep=cheap",
        "keep",         "prefetch=2",       "overlap=4",    "recompute=2",
        "balance",      "schedule=zb-h1",   "micro=5",      "offload=acts+state:file",
        "sp",           "weights=none",     "gist=none",    "cp=2 by=ring",
        "chunks=1",     "recompute=attend", "offload=none", "grads=none"};
    enum { N_WORDS = sizeof words / sizeof *words };
    int read = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        char text[512] = "pp=2 dp=4 tp=2 zero=3";
        for (uint64_t k = 0; k < N_WORDS; k++) {
            size_t len = strlen(text);
            if (sk_rng(6, i, k).a % 3 == 0)
                snprintf(text + len, sizeof text - len, " %s", words[k]);
        }
        sk_layout l, m;
        if (sk_layout_read(text, 0, &l)) continue;
        read++;
        char *out = sk_layout_print(&arena, &l);
        bool back = !sk_layout_read(out, 0, &m) && same_layout(&l, &m) &&
                    l.canonical == m.canonical && l.chunks == m.chunks && l.balance == m.balance &&
                    !strcmp(l.layers, m.layers) && !memcmp(l.by, m.by, sizeof l.by) &&
                    !strcmp(sk_layout_print(&arena, &m), out) &&
                    !strcmp(sk_layout_short(&arena, &l), sk_layout_short(&arena, &m));
        if (!back) printf("\"%s\" was read and comes back as\n%s", text, out);
        check(back);
    }
    check(read > 100);
}

/* The table of words is the reader's: each example is a layout that has the word, what is printed
 * of it reads back, and each word is known. */
static void table(void)
{
    sk_layout l, m;
    for (const sk_word *const *p = sk_word_parts; *p; p++) {
        const sk_word *w = *p;
        bool read = !sk_layout_read(w->example, 0, &l);
        if (!read) printf("\"%s\": %s\n", w->example, sk_error_line());
        check(read && strstr(w->example, w->name));
        check(sk_word_on(w, &l) || w->kind == SK_WORD_ORDER);
        char *text = sk_layout_print(&arena, &l);
        check(!sk_layout_read(text, 0, &m) && !strcmp(text, sk_layout_print(&arena, &m)));
        check(sk_word_on(w, &m) || w->kind == SK_WORD_ORDER);
        check(*w->doc && !strcmp(sk_word_find(w->name)->name, w->name));
        if (sk_layout_read(w->name, 0, &l)) check(!strstr(sk_error_line(), "unknown word"));
        sk_word_clear(w, &m); /* and what is left is a layout, unless others need it */
        if (w->kind != SK_WORD_AXIS && strcmp(w->name, "mesh") != 0 &&
            strcmp(w->name, "split") != 0)
            check(!sk_word_on(w, &m));
    }
    check(!sk_word_find("dq") && !sk_word_find(""));
}

int main(void)
{
    table();
    forms();
    together();
    names();
    error_messages();
    compile_errors();
    noise();
    sk_arena_end(&arena);
    printf("layout text: %d checks, %d failed\n", checks, bad);
    return bad != 0;
}
