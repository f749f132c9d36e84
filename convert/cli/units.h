/* The DFloat11 units of a file, for people. */
#ifndef TP_CLI_UNITS_H
#define TP_CLI_UNITS_H

#include "tensorpress.h"

/* A line about all of them, if there are any; with `each` also one for each. */
void text_units(const tp_reader *reader, const tp_file_info *file, bool each);

#endif
