/* Did jansson lack memory? Its calls give no reason for a failure. A value that could not be made is often not looked at. */
#ifndef TRAIN_JSON_MEMORY_H
#define TRAIN_JSON_MEMORY_H

#include <stdbool.h>

/* From here on this thread's JSON counts. */
void train_json_begin(void);
/* Did an allocation fail since then? */
bool train_json_lacked(void);

#endif
