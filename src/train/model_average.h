/* model_average.h - the weighted mean of several models of one shape, as a model directory.
 *
 *     sk_average_of *v = sk_many(&arena, sk_average_of, 2);
 *     v[0] = (sk_average_of){.what = "runs/a", .weight = 1};             a run: its newest
 * checkpoint v[1] = (sk_average_of){.what = "runs/b/final", .weight = 2};       a model directory
 *     SK_TRY(sk_average_open(&arena, v, 2));
 *     SK_TRY(sk_average_save(v, 2, v[0].type, "mean"));
 *
 * Averages of the weights along one run (Izmailov et al. 2018; Kaddour 2022, LAWA), of runs that
 * went on from the same weights (Gupta et al. 2020, SWAP), or of runs with other settings (Wortsman
 * et al. 2022, model soups).  skein's norms keep no running statistics, so the mean of the
 * parameters is all of the mean model.
 *
 * Opening compares every model with the first: architecture, the shape of each tensor, the numbers
 * of config.json, tokenizer and companions.  Saving reads one tensor of one model at a time: it
 * takes 12 bytes for each element of the largest tensor (float32 and float64), however many models
 * there are.  Sums are in float64, divided once by the sum of weights: the mean of n copies has
 * their bits. */
#ifndef SK_TRAIN_MODEL_AVERAGE_H
#define SK_TRAIN_MODEL_AVERAGE_H

#include "train/checkpoint.h"
#include "train/hf.h"

typedef struct sk_average_of {
    const char *what; /* a run, checkpoint or model directory */
    double weight;    /* at least 0; not all of them are */
    bool training;    /* of a checkpoint: its weights, also where it has averages of them */
    /* filled by sk_average_open() */
    const char *path; /* the checkpoint or directory that is read */
    bool is_ckpt;
    bool averages; /* of a checkpoint: averages of its weights are read (optim.ema, schedulefree) */
    sk_ckpt ckpt;
    const sk_model *model;
    sk_hyper hyper;
    sk_hf_shape *shapes;
    int n_shapes;
    sk_dtype type; /* of its tensors; SK_N_DTYPES: of several, or of one that is not written */
    sk_companions with;
} sk_average_of;

/* SK_EDATA: one cannot be read; SK_ECONF: two differ, and the first tensor that does is named. */
sk_status sk_average_open(sk_arena *a, sk_average_of *v, int n);
/* The type that all of them have; SK_EUSAGE if there is no such. */
sk_status sk_average_type(const sk_average_of *v, int n, sk_dtype *type);
/* `dir` appears at once, complete; it must not be one of those that are averaged. */
sk_status sk_average_save(const sk_average_of *v, int n, sk_dtype type, const char *dir);

#endif
