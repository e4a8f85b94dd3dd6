/* config.json, as Hugging Face transformers reads it for a LlamaForCausalLM. */
#ifndef TRAIN_CONFIG_JSON_H
#define TRAIN_CONFIG_JSON_H

#include <jansson.h>

#include "file.h"
#include "model.h"

/* A new object; NULL when memory ran out. */
json_t *train_config_json(const train_config *config);

/* Reads folder/config.json and checks that it is a Llama that this trainer has and within the ranges of the command line. */
bool train_config_read(const char *folder, train_config *config, train_error *error);

#endif
