/* tigon list OPERATOR --schema: the arguments of its entries, as the library itself checks them. */
#include <ctype.h>
#include <float.h>
#include <stdio.h>
#include <string.h>
#include <tigon/schema.h>

#include "list.h"
#include "term.h"

enum { TEXT = 96 };

static const char *const kinds[] = {"tensor", "workspace", "double", "int", "int64", "list", "reserved", "blocks"};
static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16, TIGON_I32, TIGON_I64, TIGON_F8E4M3, TIGON_I8};

/* "[..., C]" for "*c". */
static const char *shape_text(char text[TEXT], const char *pattern) {
  switch (pattern[0]) {
    case '?': return "see the header";
    case '@': return "[...] or [rows]";
    case '1': return "[1]";
    case 'r': return "[rows]";
    default: break;
  }
  size_t used = (size_t)snprintf(text, TEXT, "[");
  for (const char *at = pattern; *at; ++at) {
    const char letter[] = {(char)toupper((unsigned char)*at), 0};
    used += (size_t)snprintf(text + used, TEXT - used, "%s%s", at > pattern ? ", " : "",
                             *at == '*'   ? "..."
                             : *at == '&' ? "*"
                                          : letter);
  }
  snprintf(text + used, TEXT - used, "]");
  return text;
}

/* The field that gives the letter of a dtype; NULL: this one, or a field behind it in a call without that one. */
static const tigon_field *giver(const tigon_schema *schema, const tigon_field *field) {
  for (int i = 0; field->as && i < schema->count; ++i)
    if (schema->fields[i].gives == field->as) return &schema->fields[i] == field ? NULL : &schema->fields[i];
  return NULL;
}

/* "f32 bf16 f16", "as x or f32". */
static const char *dtype_text(char text[TEXT], const tigon_schema *schema, const tigon_field *field) {
  const tigon_field *main = giver(schema, field);
  size_t used = 0;
  if (main) {
    snprintf(text, TEXT, "as %s%s%s", main->name, field->or_dtype ? " or " : "",
             field->or_dtype ? tigon_dtype_name(field->or_dtype) : "");
    return text;
  }
  text[0] = 0;
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; ++d)
    if (field->dtypes >> dtypes[d] & 1)
      used += (size_t)snprintf(text + used, TEXT - used, "%s%s", used ? " " : "", tigon_dtype_name(dtypes[d]));
  return text;
}

static const char *strides_text(const tigon_field *field) {
  if (field->flags & TIGON_FIELD_CONTIGUOUS) return "contiguous";
  return field->flags & TIGON_FIELD_FREE_LAST ? "free" : field->flags & TIGON_FIELD_TURNED ? "turned" : "rows";
}

static const char *number_text(char text[TEXT], const tigon_field *field) {
  const bool any = field->low == 0 && field->high == 0;
  const char *zero = field->flags & TIGON_FIELD_OR_ZERO ? "0 or " : "";
  if (field->flags & TIGON_FIELD_IS_FLAG) return "0 or 1";
  if (field->divides)
    snprintf(text, TEXT, "a divisor of %c", toupper((unsigned char)field->divides));
  else if (any)
    snprintf(text, TEXT, "any");
  else if (field->low == -(double)FLT_MAX)
    snprintf(text, TEXT, "finite");
  else if (field->high >= (double)FLT_MAX)
    snprintf(text, TEXT, "%s%g or more", zero, field->low);
  else
    snprintf(text, TEXT, "%s%g %s %g", zero, field->low, field->flags & TIGON_FIELD_BELOW_HIGH ? "to below" : "to",
             field->high);
  return text;
}

/* What else a tensor may or must be. */
static const char *note_text(char text[TEXT], const tigon_field *field) {
  text[0] = 0;
  size_t used = 0;
  for (const char *at = field->in_place; at && *at; at += strcspn(at, " "), at += *at == ' ')
    used += (size_t)snprintf(text + used, TEXT - used, "%s%.*s", used ? " or " : "may be ", (int)strcspn(at, " "), at);
  if (field->below) snprintf(text, TEXT, "indices below %c", toupper((unsigned char)field->below));
  return text;
}

static void add_field(term_table *table, const tigon_schema *schema, const tigon_field *field) {
  char shape[TEXT], dtype[TEXT], note[TEXT];
  const bool tensor = field->kind == TIGON_FIELD_TENSOR;
  term_cell(table, TERM_BOLD, "%s%s", field->flags & TIGON_FIELD_EACH ? "each " : "", field->name);
  if (!tensor) {
    const bool number = field->kind >= TIGON_FIELD_DOUBLE && field->kind <= TIGON_FIELD_INT64;
    term_cell(table, TERM_PLAIN, "%s", kinds[field->kind]);
    term_cell(table, TERM_PLAIN, "%s", number ? number_text(shape, field) : "");
    for (int i = 0; i < 3; ++i) term_cell(table, TERM_PLAIN, "%s", "");
    return;
  }
  const bool out = field->flags & TIGON_FIELD_OUT, optional = field->flags & TIGON_FIELD_OPTIONAL;
  term_cell(table, out ? TERM_GREEN : TERM_PLAIN, "%s%s", out ? "out" : "in", optional ? ", may be absent" : "");
  term_cell(table, TERM_PLAIN, "%s", shape_text(shape, field->shape));
  term_cell(table, TERM_PLAIN, "%s", dtype_text(dtype, schema, field));
  term_cell(table, TERM_DIM, "%s", strides_text(field));
  term_cell(table, TERM_PLAIN, "%s", note_text(note, field));
}

int list_schema(const char *op) {
  static const term_column columns[] = {{"argument", false, 0}, {"role", false, 0},    {"shape or range", false, 0},
                                        {"dtype", false, 0},    {"strides", false, 1}, {"note", false, 2}};
  const tigon_schema *schema;
  for (int i = 0, shown = 0; (schema = tigon_schema_at(i)); ++i) {
    if (op && strcmp(schema->op, op) != 0) continue;
    printf("%stigon_%s(context, args)\n", shown++ ? "\n" : "", schema->name);
    term_table *table = term_table_new(columns, sizeof columns / sizeof *columns);
    for (int f = 0; f < schema->count; ++f)
      if (schema->fields[f].kind != TIGON_FIELD_RESERVED) add_field(table, schema, &schema->fields[f]);
    term_table_print(table, stdout);
  }
  return CLI_OK;
}

/* ---- JSON ---- */

static json_t *names_of(const char *words) {
  json_t *names = json_array();
  for (const char *at = words; at && *at;) {
    const size_t length = strcspn(at, " ");
    json_array_append_new(names, json_stringn(at, length));
    at += length + (at[length] == ' ');
  }
  return names;
}

static json_t *tensor_json(const tigon_schema *schema, const tigon_field *field) {
  char dtype[TEXT];
  return json_pack("{s:s, s:b, s:s, s:s, s:s, s:o}", "role", field->flags & TIGON_FIELD_OUT ? "out" : "in", "optional",
                   field->flags & TIGON_FIELD_OPTIONAL ? 1 : 0, "shape", field->shape, "dtype",
                   dtype_text(dtype, schema, field), "strides", strides_text(field), "in_place",
                   names_of(field->in_place));
}

static json_t *field_json(const tigon_schema *schema, const tigon_field *field) {
  json_t *json = json_pack("{s:s, s:s, s:I, s:b}", "name", field->name, "kind", kinds[field->kind], "offset",
                           (json_int_t)field->offset, "each", field->flags & TIGON_FIELD_EACH ? 1 : 0);
  if (field->kind == TIGON_FIELD_TENSOR) json_object_update_new(json, tensor_json(schema, field));
  const bool number = field->kind >= TIGON_FIELD_DOUBLE && field->kind <= TIGON_FIELD_INT64;
  char range[TEXT];
  if (number) json_object_set_new(json, "range", json_string(number_text(range, field)));
  return json;
}

int list_schema_json(const char *op) {
  const tigon_schema *schema;
  json_t *entries = json_array();
  for (int i = 0; (schema = tigon_schema_at(i)); ++i) {
    if (op && strcmp(schema->op, op) != 0) continue;
    json_t *fields = json_array();
    for (int f = 0; f < schema->count; ++f) json_array_append_new(fields, field_json(schema, &schema->fields[f]));
    json_array_append_new(entries, json_pack("{s:s, s:s, s:I, s:I, s:o}", "op", schema->op, "entry", schema->entry,
                                             "bytes", (json_int_t)schema->bytes, "element_bytes",
                                             (json_int_t)schema->element_bytes, "arguments", fields));
  }
  cli_print_json(json_pack("{s:o}", "entries", entries));
  return CLI_OK;
}
