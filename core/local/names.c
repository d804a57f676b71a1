/* local/names.c: see names.h. */
#include "base/base.h"

#include "base/str.h"
#include "local/names.h"
#include "local/vm.h"
#include <boxd/error.h>

#define TRIES 100

static const char *const adjectives[] = { "amber",  "brave", "calm",  "clear", "early", "fresh",
                                          "gentle", "happy", "keen",  "light", "merry", "noble",
                                          "quiet",  "rapid", "sunny", "warm" };
static const char *const nouns[] = { "brook",  "cedar", "cloud", "dune",  "falcon", "field",
                                     "harbor", "hill",  "lake",  "maple", "meadow", "otter",
                                     "pine",   "river", "robin", "stone" };

int suggest_name(struct service *s, char out[NAME_MAX_LEN + 1])
{
    for (int i = 0; i < TRIES; i++) {
        uint8_t dice[4];
        int r = random_bytes(dice, sizeof(dice));

        if (r < 0)
            return boxd_words(r, "cannot make a name: %m");
        snprintf(out, NAME_MAX_LEN + 1, "%s-%s-%02x%02x",
                 adjectives[dice[0] % ARRAY_LEN(adjectives)], nouns[dice[1] % ARRAY_LEN(nouns)],
                 dice[2], dice[3]);
        if (!vm_taken(s, out))
            return 0;
    }
    return boxd_words(-EBUSY, "no free name was found: give one");
}
