/* Did jansson lack memory? Its calls give no reason for a failure. A value that could not be made is often not looked at. */
#ifndef TRAIN_JSON_MEMORY_H
#define TRAIN_JSON_MEMORY_H

#include <jansson.h>
#include <stdbool.h>

/* From here on this thread's JSON counts. */
void train_json_begin(void);
/* Did an allocation fail since then? */
bool train_json_lacked(void);
/* What was read; NULL where memory was lacking, as a text may then be short of a letter. Takes it over. */
json_t *train_json_whole(json_t *read);
/* The value as text, for free(); NULL where memory was lacking for it, or for the text. */
char *train_json_text(const json_t *value, size_t flags);

#endif
