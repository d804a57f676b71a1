/* boxd/error.h: results and their words.
 *
 * Every function and callback of libboxd reports a result that is 0 or more, or a negative errno.
 * The words for people are added once, where they are known best, with boxd_words(); whoever shows
 * the failure asks boxd_error_words() for them right away: in the callback that reports the result,
 * or after the function that returned it.
 *
 * Form of the words: lower case, what failed first, the subject in 'quotes', the cure last, no full
 * stop. A key or token never stands in them.
 *
 * Threads: the words are kept per thread. Everything of libboxd runs on the loop's thread. */
#pragma once

#include <boxd/visibility.h>

/* Remembers the words that explain `r` and returns `r`, so that it can stand in a return statement:
 *     return boxd_words(-ENOENT, "machine '%s' does not exist", name);
 * `%m` is strerror(-r). Longer words than 1023 bytes are cut. */
BOXD_API int boxd_words(int r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The words for `r`: the last ones remembered in this thread if they were given for this `r`, else
 * the text of the errno. Never NULL; valid until the next boxd_words() of this thread. */
BOXD_API const char *boxd_error_words(int r);

/* Forgets the remembered words, so that an unrelated earlier failure cannot explain a later one. */
BOXD_API void boxd_words_clear(void);
