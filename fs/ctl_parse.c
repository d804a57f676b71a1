/* fs/ctl_parse.c: a line of `ctl` becomes a checked command. Sends nothing. */
#include "ctl.h"

#define MAX_VCPU 1024

/* ---- the nearest known word ---- */

/* Edit distance, cut at `limit`; both at most 32 bytes. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[33], n = (unsigned)strlen(b);

    if (strlen(a) > 32 || n > 32)
        return 33;
    for (unsigned j = 0; j <= n; j++)
        row[j] = j;
    for (unsigned i = 1; a[i - 1]; i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (unsigned j = 1; j <= n; j++) {
            unsigned change = diagonal + (a[i - 1] != b[j - 1]);
            unsigned shorter = row[j] + 1, longer = row[j - 1] + 1;

            diagonal = row[j];
            row[j] = change < shorter ? change : shorter;
            if (longer < row[j])
                row[j] = longer;
        }
    }
    return row[n];
}

static void consider(const char **best, unsigned *least, const char *word, const char *known)
{
    unsigned d = known ? distance(word, known) : 33;

    if (d < *least) {
        *least = d;
        *best = known;
    }
}

static const char *nearest_word(const struct ctl_word *table, const char *word)
{
    const char *best = NULL;
    unsigned least = 3;

    for (const struct ctl_word *w = table; w->name; w++) {
        consider(&best, &least, word, w->name);
        consider(&best, &least, word, w->alias);
    }
    return best;
}

static const char *nearest_option(const struct ctl_option *options, const char *key)
{
    const char *best = NULL;
    unsigned least = 3;

    for (const struct ctl_option *o = options; o && o->key; o++)
        consider(&best, &least, key, o->key);
    return best;
}

/* ---- options ---- */

static bool one_of(const char *values, const char *value)
{
    size_t n = strlen(value);

    for (const char *p = values; n && (p = strstr(p, value)); p += n)
        if ((p == values || p[-1] == '|') && (p[n] == '|' || !p[n]))
            return true;
    return false;
}

static const char *expected(const struct ctl_option *o)
{
    switch (o->kind) {
    case CTL_NUMBER:
        return "a number from 1 to 1024";
    case CTL_SIZE:
        return "a size like 4G";
    case CTL_SECONDS:
        return "a time like 90, 10m or 2h";
    case CTL_CHOICE:
        return o->values;
    default:
        return "a text";
    }
}

static bool value_good(struct ctl_setting *s)
{
    switch (s->option->kind) {
    case CTL_NUMBER:
        return parse_u64(s->value, MAX_VCPU, &s->number) == 0 && s->number > 0;
    case CTL_SIZE:
        return parse_size(s->value, &s->number) == 0 && s->number <= INT64_MAX;
    case CTL_SECONDS:
        return parse_seconds(s->value, &s->number) == 0 && s->number <= UINT32_MAX;
    case CTL_CHOICE:
        return one_of(s->option->values, s->value);
    case CTL_TEXT:
        return *s->value;
    default:
        return true;
    }
}

/* Whether `word` (key of length n) is this option; CTL_PAIR: "label.team". */
static bool is_option(const struct ctl_option *o, const char *word, size_t n)
{
    size_t k = strlen(o->key);

    if (strncmp(word, o->key, k))
        return false;
    return o->kind == CTL_PAIR ? n > k + 1 && word[k] == '.' : n == k;
}

static const struct ctl_option *find_option(const struct ctl_option *options, const char *word,
                                            size_t n)
{
    for (const struct ctl_option *o = options; o && o->key; o++)
        if (is_option(o, word, n))
            return o;
    return NULL;
}

static int refuse_option(const struct ctl_word *w, const char *word, size_t n)
{
    _cleanup_free_ char *key = strndup(word, n);
    _cleanup_buf_ struct buf known = { 0 };
    const char *near = key ? nearest_option(w->options, key) : NULL;

    if (near)
        return boxd_words(-EINVAL, "'%s' has no option '%s': did you mean '%s'", w->name, key,
                          near);
    for (const struct ctl_option *o = w->options; o && o->key; o++)
        if (buf_addf(&known, " %s%s", o->key, o->kind == CTL_PAIR ? ".KEY" : "") < 0)
            return -ENOMEM;
    return boxd_words(-EINVAL, "'%s' has no option '%.*s': it takes%s", w->name, (int)n, word,
                      buf_str(&known));
}

/* `word` splits at its first '=' (which is overwritten) or is a flag. */
static int add_setting(struct ctl_command *c, char *word, size_t n)
{
    const struct ctl_option *o = find_option(c->word->options, word, n);
    struct ctl_setting s = { .option = o };

    if (!o)
        return refuse_option(c->word, word, n);
    if (o->kind != CTL_FLAG && !word[n])
        return boxd_words(-EINVAL, "option '%s' needs a value: %s", word, expected(o));
    if (o->kind == CTL_FLAG && word[n])
        return boxd_words(-EINVAL, "option '%s' takes no value", o->key);
    s.value = word[n] ? word + n + 1 : NULL;
    if (o->kind == CTL_PAIR)
        s.key = word + strlen(o->key) + 1;
    if (!utf8_valid(word, strlen(word)))
        return boxd_words(-EINVAL, "option '%s' must be UTF-8 text", o->key);
    if (s.value && !value_good(&s))
        return boxd_words(-EINVAL, "option '%s' needs %s, not '%s'", o->key, expected(o), s.value);
    word[n] = '\0';
    for (size_t i = 0; i < c->setting_count; i++)
        if (c->settings[i].option == o &&
            (o->kind != CTL_PAIR || !strcmp(c->settings[i].key, s.key)))
            return boxd_words(-EINVAL, "option '%s' is given twice", word);
    c->settings[c->setting_count++] = s;
    return 0;
}

/* ---- a line ---- */

static const struct ctl_word *find_word(const struct ctl_word *table, const char *name)
{
    for (const struct ctl_word *w = table; w->name; w++)
        if (!strcmp(w->name, name) || (w->alias && !strcmp(w->alias, name)))
            return w;
    return NULL;
}

static int refuse_word(const struct ctl_word *table, const char *word)
{
    const char *near = nearest_word(table, word);

    if (near)
        return boxd_words(-EINVAL, "unknown command '%s': did you mean '%s'", word, near);
    return boxd_words(-EINVAL, "unknown command '%s' (reading ctl shows the commands)", word);
}

static int count_args(const struct ctl_command *c)
{
    const struct ctl_word *w = c->word;

    if (c->arg_count > w->max)
        return boxd_words(-EINVAL, "'%s' does not take '%s' (usage: %s%s%s)", w->name,
                          c->args[w->max], w->name, w->args ? " " : "", w->args ? w->args : "");
    if (c->arg_count < w->min)
        return boxd_words(-EINVAL, "'%s' needs %s", w->name, w->args);
    return 0;
}

int ctl_parse(const struct ctl_word *table, const char *line, struct ctl_command *c)
{
    size_t count = 0;
    int r;

    *c = (struct ctl_command){ 0 };
    r = shell_split(line, &c->words, &count);
    if (r < 0 || !count)
        return r;
    c->word = find_word(table, c->words[0]);
    if (!c->word)
        return refuse_word(table, c->words[0]);
    c->args = calloc(count, sizeof *c->args);
    c->settings = calloc(count, sizeof *c->settings);
    if (!c->args || !c->settings)
        return -ENOMEM;
    for (size_t i = 1; i < count; i++) {
        char *word = c->words[i];
        size_t n = strcspn(word, "=");

        if (c->word->options && (word[n] || find_option(c->word->options, word, n)))
            r = add_setting(c, word, n);
        else if (!utf8_valid(word, strlen(word)))
            r = boxd_words(-EINVAL, "'%s' takes UTF-8 text only", c->word->name);
        else
            c->args[c->arg_count++] = word;
        if (r < 0)
            return r;
    }
    return count_args(c);
}

void ctl_command_clear(struct ctl_command *c)
{
    strv_free(c->words);
    free(c->args);
    free(c->settings);
    *c = (struct ctl_command){ 0 };
}

/* ---- the usage ---- */

static int option_usage(const struct ctl_option *o, struct buf *out)
{
    if (o->kind == CTL_FLAG)
        return buf_addf(out, "#     %s\n", o->key);
    if (o->kind == CTL_PAIR)
        return buf_addf(out, "#     %s.KEY=VALUE\n", o->key);
    return buf_addf(out, "#     %s=%s\n", o->key, o->values);
}

int ctl_usage(const struct ctl_word *table, const char *title, struct buf *out)
{
    int r = buf_addf(out, "# %s\n# One command a line, words as in a shell:\n", title);

    for (const struct ctl_word *w = table; w->name && r >= 0; w++) {
        _cleanup_free_ char *head =
            strf("%s%s%s%s%s", w->name, w->alias ? "|" : "", w->alias ? w->alias : "",
                 w->args ? " " : "", w->args ? w->args : "");

        if (!head)
            return -ENOMEM;
        r = buf_addf(out, "#   %-28s %s\n", head, w->help);
        for (const struct ctl_option *o = w->options; o && o->key && r >= 0; o++)
            r = option_usage(o, out);
    }
    return r;
}
