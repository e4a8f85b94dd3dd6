/* run.json: a run's options as a file, which --config takes. A key is an option's name without dashes; a number is a number, a
 * flag true or false, everything else text or null. */
#ifndef TRAIN_RUN_JSON_H
#define TRAIN_RUN_JSON_H

#include <jansson.h>

#include "options.h"

/* Writes folder/run.json: all options but those that say where one process reads and writes, and how it talks
 * (TRAIN_USE_HERE). *lacks names one that JSON cannot hold, because its text is no UTF-8; NULL: none. */
bool train_run_json_write(const char *folder, const train_options *options, const char **lacks, train_error *error);

/* Sets the options that the file has and that were not given before; they count as given then. A key that is no option, and
 * a value that the option cannot have, is a mistake. *kept holds the texts: json_decref() it after the run, also on failure. */
bool train_run_json_read(const char *path, train_options *options, json_t **kept, train_error *error);

#endif
