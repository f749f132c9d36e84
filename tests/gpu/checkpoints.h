/* Small checkpoints made up for tests, and containers of them. */
#ifndef TP_TESTS_CHECKPOINTS_H
#define TP_TESTS_CHECKPOINTS_H

#include "tensorpress.h"

/*
 * A safetensors file at `path` with tensors of every dtype: large ones with frames of their own, small ones
 * that share, constants, one without bytes, two names for the same bytes, and a copy of a large one.
 */
void make_checkpoint(const char *path);
/* A container of it, or of any file. */
void make_container(const char *from, const char *to, tp_level level, tp_codec_choice codec);

#endif
