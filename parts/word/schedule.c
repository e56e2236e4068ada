/* schedule.c - the order of the tasks of a pipeline: parts/schedule, or a file. */
#include "layout/word.h"
#include "program/pipeline_schedule.h"

#include <stdio.h>
#include <string.h>

static const char usual[] = "1f1b";

static sk_status set(sk_reading *r, const char *value)
{
    sk_layout *l = r->l;
    if (!*value || strlen(value) >= sizeof l->schedule)
        return sk_fail(SK_ECONF, "layout: \"%s\" is no name for a schedule (1 to %zu characters)",
                       value, sizeof l->schedule - 1);
    snprintf(l->schedule, sizeof l->schedule, "%s", value);
    l->schedule_said = true;
    return SK_OK;
}

static bool on(const sk_layout *l) { return l->schedule_said; }

static void clear(sk_layout *l)
{
    snprintf(l->schedule, sizeof l->schedule, usual);
    l->schedule_said = false;
}

static sk_status complete(sk_reading *r)
{
    if (!r->l->schedule_said) clear(r->l);
    return SK_OK;
}

static void print(const sk_layout *l, sk_out *o)
{
    if (l->stage_axis >= 0 || strcmp(l->schedule, usual) != 0)
        sk_out_add(o, "schedule %s", l->schedule);
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (sk_axis_size(l, l->stage_axis) > 1) sk_out_add(o, "%s", l->schedule);
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (sk_axis_size(l, l->stage_axis) < 2)
        sk_out_add(o, "schedule %s has nothing to do: there is one stage, pp=N makes more",
                   l->schedule);
}

static sk_status fits(const sk_word_ask *ask)
{
    const char *names[64], *name = ask->layout->schedule;
    int n = 0;
    if (ask->late && ask->async)
        return sk_fail(SK_ECONF,
                       "optim.late: schedule %s updates within the step already; leave one of the "
                       "two out",
                       name);
    if (sk_schedule_find(name)) return SK_OK;
    while (n < 64 && sk_schedule_parts[n]) names[n] = sk_schedule_parts[n]->name, n++;
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_ECONF, "layout: no schedule is called '%s'%s%s%s", name,
                   near ? " (did you mean '" : "; see skein list schedule", near ? near : "",
                   near ? "'?)" : "");
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    int n = 0;
    if (l->stage_axis < 0 && !sk_dice_one_in(d, 8)) return false;
    while (sk_schedule_parts[n]) n++;
    const char *name = sk_schedule_parts[sk_dice_pick(d, 0, n - 1)]->name;
    if (!strcmp(name, "file")) return false;
    snprintf(phrase, SK_WORD_TEXT, "schedule=%s", name);
    return true;
}

const sk_word sk_word_schedule = {
    .name = "schedule",
    .doc = "the order of a pipeline's tasks: skein list schedule, or a file (1f1b)",
    .value = "NAME|./FILE",
    .sentence = {"schedule NAME"},
    .clause_of = "stages",
    .alone = true,
    .example = "pp=2 micro=4 schedule=zb-v",
    .kind = SK_WORD_OTHER,
    .place = 60,
    .brief_place = 166,
    .set = set,
    .complete = complete,
    .on = on,
    .clear = clear,
    .print = print,
    .print_brief = print_brief,
    .idle = idle,
    .fits = fits,
    .draw = draw,
    .tries = "zb-h1 zb-v", /* interleaved: with chunks */
};
