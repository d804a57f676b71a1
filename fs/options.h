/* fs/options.h: what the command line and -o say, by one table. */
#pragma once

#include "fs.h"

void options_init(struct options *o);
void options_clear(struct options *o);

/* What to do after a command line was read without an error. */
enum { OPTIONS_MOUNT, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_NOTHING };

/* Reads `boxdfs [OPTION]... MOUNTPOINT`. Returns one of the values above or -EINVAL with words. */
int options_parse(struct options *o, int argc, char **argv);
/* Reads what mount(8) gives to a helper: `SOURCE MOUNTPOINT [-sfnv] [-o LIST]`. */
int options_parse_helper(struct options *o, int argc, char **argv);
/* Reads one -o list: `a,b=c`, where `\,` is a comma of a value. */
int options_parse_list(struct options *o, const char *list);
/* The options of the table, for `boxdfs help`. */
void options_print(FILE *to);
