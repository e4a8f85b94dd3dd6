/* What `tigon list` prints in files of its own. */
#ifndef TIGON_LIST_H
#define TIGON_LIST_H

#include "cli.h"

/* The arguments of one operator's entries, or of all where `op` is NULL; the exit code. */
int list_schema(const char *op);
int list_schema_json(const char *op);

#endif
