/* conf_yaml.c - a YAML file as a flat list of settings, through libyaml's events.
 *
 * The file may be anything: at most 1 MiB, 16 levels and 1000 keys are read. */
#include "cli/setting.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "data/data_files.h"
#include "train/checkpoint.h"

#include <libgen.h>
#include <string.h>
#include <yaml.h>

enum { MAX_FILE = 1 << 20, MAX_DEPTH = 16, MAX_KEYS = 1000 };

typedef struct reader {
    sk_arena *arena;
    const char *path;
    yaml_parser_t parser;
    sk_settings *out;
    const char *section; /* that all of it belongs to */
    const char *hint;    /* for what is not YAML */
} reader;

static sk_spot spot(yaml_mark_t m) { return (sk_spot){(int)m.line + 1, (int)m.column + 1}; }

static sk_status wrong(const reader *r, sk_spot at, const char *what)
{
    return sk_fail(SK_ECONF, "%s:%d:%d: %s", r->path, at.line, at.column, what);
}

static sk_status next(reader *r, yaml_event_t *e)
{
    if (yaml_parser_parse(&r->parser, e)) return SK_OK;
    *e = (yaml_event_t){0};
    return sk_fail(SK_ECONF, "%s:%d:%d: not YAML: %s%s", r->path, spot(r->parser.problem_mark).line,
                   spot(r->parser.problem_mark).column,
                   r->parser.problem ? r->parser.problem : "out of memory", r->hint);
}

/* The text of a scalar; NULL with an error in *status. */
static const char *text(const reader *r, const yaml_event_t *e, sk_status *status)
{
    const char *s = (const char *)e->data.scalar.value;
    sk_spot at = spot(e->start_mark);
    if (e->type == YAML_ALIAS_EVENT) *status = wrong(r, at, "aliases (*x) are not understood here");
    else if (e->type != YAML_SCALAR_EVENT)
        *status = wrong(r, at, "a plain value is needed here, not a list or mapping");
    else if (e->data.scalar.tag) *status = wrong(r, at, "tags (!x) are not understood here");
    else if (strlen(s) != e->data.scalar.length)
        *status = wrong(r, at, "a NUL character inside a value");
    else return sk_strdup(r->arena, s);
    return NULL;
}

static bool is_null(const yaml_event_t *e)
{
    const char *s = (const char *)e->data.scalar.value;
    return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*s || !strcmp(s, "~") || !strcmp(s, "null"));
}

static sk_status add(reader *r, const char *key, sk_spot key_at, const char *value, sk_spot at)
{
    for (int i = 0; i < r->out->n; i++)
        if (!strcmp(r->out->v[i].key, key))
            return sk_fail(SK_ECONF, "%s:%d:%d: \"%s\" is given twice, first in line %d", r->path,
                           key_at.line, key_at.column, key, r->out->v[i].key_at.line);
    if (!sk_conf_is_key(key))
        return sk_fail(SK_ECONF, "%s:%d:%d: unknown key \"%.80s\"%s", r->path, key_at.line,
                       key_at.column, key, sk_conf_hint(r->arena, key, NULL));
    if (r->out->n == MAX_KEYS) return wrong(r, key_at, "over 1000 keys");
    *sk_push(r->arena, r->out) = (sk_setting){key, value, r->path, key_at, at};
    return SK_OK;
}

/* The items of a list, one a line. */
static sk_status list(reader *r, sk_out *items)
{
    sk_status status = SK_OK;
    for (bool first = true; !status; first = false) {
        yaml_event_t e;
        status = next(r, &e);
        if (e.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&e);
            break;
        }
        const char *s = status ? NULL : text(r, &e, &status);
        if (s) sk_out_add(items, "%s%s", first ? "" : "\n", s);
        yaml_event_delete(&e);
    }
    return status;
}

static sk_status mapping(reader *r, const char *section, int depth);

/* The value that begins with event e. */
static sk_status value(reader *r, const yaml_event_t *e, const char *key, sk_spot key_at, int depth)
{
    sk_status status = SK_OK;
    if (depth > MAX_DEPTH) return wrong(r, key_at, "over 16 levels deep");
    if (e->type == YAML_MAPPING_START_EVENT && !strcmp(key, "optim.groups"))
        return wrong(r, key_at,
                     "optim.groups is one text, no mapping: groups: \"matrix: muon lr=0.02, rest: "
                     "adamw\"");
    if (e->type == YAML_MAPPING_START_EVENT) return mapping(r, key, depth);
    if (e->type == YAML_SEQUENCE_START_EVENT) {
        sk_out items = {.arena = r->arena};
        sk_out_add(&items, "%s", "");
        SK_TRY(list(r, &items));
        return add(r, key, key_at, items.s, spot(e->start_mark));
    }
    const char *s = text(r, e, &status);
    if (!s) return status;
    if (is_null(e)) s = "";
    if (!*s && sk_conf_is_section(key) && !sk_conf_is_key(key)) return SK_OK;
    return add(r, key, key_at, s, spot(e->start_mark));
}

/* One key of a mapping and its value; *end at the end of the mapping. */
static sk_status pair(reader *r, const char *section, int depth, bool *end)
{
    yaml_event_t k, v;
    sk_status status = next(r, &k);
    *end = k.type == YAML_MAPPING_END_EVENT;
    const char *name = status || *end ? NULL : text(r, &k, &status);
    sk_spot at = spot(k.start_mark);
    yaml_event_delete(&k);
    if (status || *end) return status;
    status = next(r, &v);
    if (!status)
        status = value(r, &v, *section ? sk_print(r->arena, "%s.%s", section, name) : name, at,
                       depth + 1);
    yaml_event_delete(&v);
    return status;
}

static sk_status mapping(reader *r, const char *section, int depth)
{
    for (bool end = false; !end;) SK_TRY(pair(r, section, depth, &end));
    return SK_OK;
}

/* stream start, document start, one mapping, document end, stream end */
static sk_status document(reader *r)
{
    sk_status status = SK_OK;
    bool seen = false;
    for (yaml_event_type_t type = YAML_NO_EVENT; !status && type != YAML_STREAM_END_EVENT;) {
        yaml_event_t e;
        status = next(r, &e);
        type = e.type;
        if (type == YAML_MAPPING_START_EVENT) status = mapping(r, r->section, 1);
        else if (type == YAML_DOCUMENT_START_EVENT && seen)
            status = wrong(r, spot(e.start_mark), "a second document; one is read");
        else if (type == YAML_SEQUENCE_START_EVENT || type == YAML_ALIAS_EVENT ||
                 (type == YAML_SCALAR_EVENT && !is_null(&e)))
            status = wrong(r, spot(e.start_mark), "keys with values are needed here");
        seen = seen || type == YAML_DOCUMENT_START_EVENT;
        yaml_event_delete(&e);
    }
    return status;
}

/* A checkpoint has the job it was saved in: its manifest reads like that job's config.yaml. */
static sk_status from_manifest(sk_arena *a, const char *path, sk_text *out)
{
    sk_ckpt c;
    SK_TRY(sk_ckpt_read(a, dirname(sk_strdup(a, path)), &c));
    if (!*c.state.config) return sk_fail(SK_EDATA, "%s has no config of its job", path);
    *out = (sk_text){sk_strdup(a, c.state.config), strlen(c.state.config)};
    return SK_OK;
}

sk_status sk_conf_yaml(sk_arena *a, const char *path, sk_settings *out)
{
    sk_text file = {0};
    reader r = {.arena = a, .path = path, .out = out};
    bool paste = false;
    if (!strcmp(basename(sk_strdup(a, path)), SK_MANIFEST_FILE))
        SK_TRY(from_manifest(a, path, &file));
    else SK_TRY(sk_data_read(a, path, MAX_FILE, &file));
    SK_TRY(sk_conf_no_deepspeed(a, path, file.s, file.n));
    SK_TRY(sk_conf_is_paste(a, path, file.s, file.n, &paste));
    r.section = paste ? "model" : "";
    r.hint = strstr(file.s, "\"model_type\"")
                 ? "; a config.json is pasted with its braces: \"model: {...}\""
                 : "";
    if (!yaml_parser_initialize(&r.parser)) return sk_fail(SK_EIO, "libyaml: no memory");
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)file.s, file.n);
    sk_status status = document(&r);
    yaml_parser_delete(&r.parser);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
