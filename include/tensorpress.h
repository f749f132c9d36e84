/*
 * tensorpress: lossless, format-aware compression of model checkpoints.
 *
 * Four levels, each usable alone:
 *   codec       buffers: tp_encoder, tp_decoder            (frames of at most 4 MiB)
 *   container   files:   tp_reader                         (list, read tensors and slices, verify)
 *   conversion  files and folders: tp_compress_file, tp_decompress_file, tp_verify_file, tp_writer
 *   device      tensors: tp_device, tp_loader              (decode where the weights are used)
 *
 * Every function that can fail returns a tp_status and, where it takes a `tp_error *`, fills it (it may be
 * NULL). Nothing here prints, exits or changes global state. Handles may be used by one thread at a time,
 * except tp_reader, whose reading functions may be called from many threads at once.
 * The format of containers and frames is specified in docs/format.md.
 */
#ifndef TENSORPRESS_H
#define TENSORPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden symbols; these are the visible ones. */
#pragma GCC visibility push(default)

#define TP_VERSION_MAJOR 0
#define TP_VERSION_MINOR 1
#define TP_VERSION_PATCH 0
/* The container version that this library writes and reads (docs/format.md section 2). */
#define TP_FORMAT_MAJOR 0
#define TP_FORMAT_MINOR 1
/* Changes with every incompatible change of this header. */
#define TP_ABI_VERSION 1

/* "0.1.0" of the library that is linked, and its TP_ABI_VERSION. */
const char *tp_version(void);
int tp_abi_version(void);

/* ------------------------------------------------------------------------------------------ status */

/* X(name, exit status of the command line, message) */
#define TP_STATUS_LIST(X)                                                                              \
    X(TP_OK, 0, "ok")                                                                                  \
    X(TP_CORRUPT, 1, "the data is damaged")                                                            \
    X(TP_TRUNCATED, 1, "the data ends too early")                                                      \
    X(TP_NOT_CONTAINER, 1, "not a tensorpress container")                                              \
    X(TP_MISMATCH, 1, "the data differs")                                                              \
    X(TP_INVALID_ARGUMENT, 2, "invalid argument")                                                      \
    X(TP_EXISTS, 2, "the output exists already")                                                       \
    X(TP_NOT_FOUND, 2, "no such entry")                                                                \
    X(TP_BUFFER_TOO_SMALL, 2, "the buffer is too small")                                               \
    X(TP_IO, 3, "input/output error")                                                                  \
    X(TP_NO_MEMORY, 3, "out of memory")                                                                \
    X(TP_NO_SPACE, 3, "no space left")                                                                 \
    X(TP_LIMIT, 3, "a limit is exceeded")                                                              \
    X(TP_UNSUPPORTED, 4, "not supported here")                                                         \
    X(TP_NEWER_VERSION, 4, "made by a newer version")                                                  \
    X(TP_CANCELLED, 130, "cancelled")

#define TP_STATUS_ENUM(name, code, text) name,
typedef enum tp_status { TP_STATUS_LIST(TP_STATUS_ENUM) TP_STATUS_COUNT } tp_status;
#undef TP_STATUS_ENUM

/* The message and the exit status of the command line for a status; never NULL. */
const char *tp_status_message(tp_status status);
int tp_status_exit_code(tp_status status);

/* What went wrong. `message` is one line for people: path, place and reason, without "tensorpress:". */
typedef struct tp_error {
    tp_status status;
    int sys_errno;   /* errno of the failed call, or 0 */
    bool has_offset; /* `offset` is meaningful */
    uint64_t offset; /* byte offset in the file concerned */
    char message[1024];
} tp_error;

/*
 * Fills *error (NULL: nothing) and returns status, so that a check reads `return tp_error_set(...)`. For code
 * that implements callbacks of this header. The second form also gives the byte offset concerned.
 */
tp_status tp_error_set(tp_error *error, tp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tp_status tp_error_set_at(tp_error *error, tp_status status, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ------------------------------------------------------------------------------------- dtype classes */

/* How the bits of an element lie; all that the codec knows of a dtype. X(name, value, text) */
#define TP_CLASS_LIST(X)                                                                               \
    X(TP_CLASS_BYTES, 0, "bytes")                                                                      \
    X(TP_CLASS_BF16, 1, "bf16")                                                                        \
    X(TP_CLASS_F16, 2, "f16")                                                                          \
    X(TP_CLASS_F32, 3, "f32")                                                                          \
    X(TP_CLASS_F64, 4, "f64")                                                                          \
    X(TP_CLASS_E4M3, 5, "e4m3")                                                                        \
    X(TP_CLASS_E5M2, 6, "e5m2")                                                                        \
    X(TP_CLASS_I8, 7, "i8")                                                                            \
    X(TP_CLASS_I16, 8, "i16")                                                                          \
    X(TP_CLASS_I32, 9, "i32")                                                                          \
    X(TP_CLASS_I64, 10, "i64")

#define TP_CLASS_ENUM(name, value, text) name = value,
typedef enum tp_class { TP_CLASS_LIST(TP_CLASS_ENUM) TP_CLASS_COUNT } tp_class;
#undef TP_CLASS_ENUM

const char *tp_class_name(tp_class c);   /* "bf16", ...; "unknown" if out of range */
size_t tp_class_element_size(tp_class c); /* bytes; 1 for bytes */

/* -------------------------------------------------------------------------------------- codec level */

typedef enum tp_level { TP_LEVEL_FAST, TP_LEVEL_DEFAULT, TP_LEVEL_MAX } tp_level;

/* What the caller asks for. A choice that does not fit the data falls back to AUTO for it. */
typedef enum tp_codec_choice {
    TP_CODEC_AUTO,
    TP_CODEC_RAW,
    TP_CODEC_LZ4,
    TP_CODEC_BG_LZ4, /* byte planes, one LZ4 block */
    TP_CODEC_RANS,   /* split and rANS, never LZ4 for typed data */
    TP_CODEC_DF11
} tp_codec_choice;

/* X(name, value, text): a frame's codec (docs/format.md section 5). */
#define TP_FRAME_CODEC_LIST(X)                                                                         \
    X(TP_FRAME_RAW, 0, "raw")                                                                          \
    X(TP_FRAME_LZ4, 1, "lz4")                                                                          \
    X(TP_FRAME_SPLIT, 2, "split")                                                                      \
    X(TP_FRAME_PLANES, 3, "planes")                                                                    \
    X(TP_FRAME_DF11, 4, "df11")                                                                        \
    X(TP_FRAME_GGUF, 5, "gguf")

#define TP_FRAME_CODEC_ENUM(name, value, text) name = value,
typedef enum tp_frame_codec { TP_FRAME_CODEC_LIST(TP_FRAME_CODEC_ENUM) } tp_frame_codec;
#undef TP_FRAME_CODEC_ENUM

/* What a frame does, for people, by number as stored; a tensor over several frames can be mixed. X(name, text) */
#define TP_METHOD_LIST(X)                                                                              \
    X(TP_METHOD_NONE, "none")                                                                          \
    X(TP_METHOD_RAW, "raw")                                                                            \
    X(TP_METHOD_CONSTANT, "constant")                                                                  \
    X(TP_METHOD_LZ4, "lz4")                                                                            \
    X(TP_METHOD_BG_LZ4, "bg-lz4")                                                                      \
    X(TP_METHOD_RANS, "rans")                                                                          \
    X(TP_METHOD_DF11, "df11")                                                                          \
    X(TP_METHOD_GGUF, "gguf")                                                                          \
    X(TP_METHOD_MIXED, "mixed")

#define TP_METHOD_ENUM(name, text) name,
typedef enum tp_method { TP_METHOD_LIST(TP_METHOD_ENUM) TP_METHOD_COUNT } tp_method;
#undef TP_METHOD_ENUM
const char *tp_method_name(tp_method m);

#define TP_FRAME_MAX_RAW ((size_t)4 << 20) /* bytes that one frame may hold */

typedef struct tp_encoder tp_encoder; /* workspace; reuse it, one thread at a time */
typedef struct tp_decoder tp_decoder;

/* Creates a workspace. TP_NO_MEMORY. */
tp_status tp_encoder_create(tp_encoder **encoder);
void tp_encoder_destroy(tp_encoder *encoder); /* NULL is fine, here and below */
tp_status tp_decoder_create(tp_decoder **decoder);
void tp_decoder_destroy(tp_decoder *decoder);

/* Largest frame that tp_encode makes from raw_size bytes: 128 + raw_size rounded up to 128. */
size_t tp_encode_bound(size_t raw_size);

/*
 * Encodes raw_size bytes (1 .. TP_FRAME_MAX_RAW) of class cls into one frame at dst. A raw_size that is not
 * a multiple of the element size is coded as bytes. *size receives the frame's size.
 * TP_INVALID_ARGUMENT, TP_BUFFER_TOO_SMALL (capacity below tp_encode_bound(raw_size)).
 */
tp_status tp_encode(tp_encoder *encoder, tp_class cls, tp_level level, tp_codec_choice choice,
                    const void *raw, size_t raw_size, void *dst, size_t capacity, size_t *size);

/* A frame's header fields, believed only after its checks have passed. */
typedef struct tp_frame_info {
    tp_frame_codec codec;
    tp_method method;
    tp_class cls;
    uint32_t raw_size;
    uint32_t stored_size;
    uint8_t symbol_bits;         /* s */
    uint8_t elements_per_symbol; /* c */
    bool low_coded, joined;
    uint64_t stored_hash[2]; /* low half first */
    uint64_t raw_hash[2];
} tp_frame_info;

/*
 * Checks a whole frame (hash over its bytes, then structure) and reports its fields.
 * TP_CORRUPT, TP_TRUNCATED, TP_UNSUPPORTED (codec unknown).
 */
tp_status tp_frame_check(const void *frame, size_t size, tp_frame_info *info, tp_error *error);

/*
 * Decodes one frame, with every check. capacity must be at least its raw size. Nothing is read beyond
 * frame + size. On an error the contents of dst are unspecified and must not be used.
 * TP_CORRUPT, TP_TRUNCATED, TP_UNSUPPORTED, TP_BUFFER_TOO_SMALL.
 */
tp_status tp_decode(tp_decoder *decoder, const void *frame, size_t size, void *dst, size_t capacity,
                    size_t *raw_size, tp_error *error);

/*
 * Names of the CPU kernels built in, portable first, best last, NULL at the end; whether this CPU has one;
 * the one in use; and forcing one for everything made afterwards (encoders, decoders, readers, conversions) in
 * this process (NULL: the best; meant for tests and measurements). TP_NOT_FOUND, TP_UNSUPPORTED.
 */
const char *const *tp_kernel_names(void);
bool tp_kernel_available(const char *name);
const char *tp_kernel_active(void);
tp_status tp_kernel_force(const char *name);
/* Encodes and decodes built-in patterns with one kernel and compares with the portable one. */
tp_status tp_kernel_self_test(const char *name, tp_error *error);

/* ---------------------------------------------------------------------------------- container level */

typedef enum tp_format {
    TP_FORMAT_BYTES = 0,
    TP_FORMAT_SAFETENSORS = 1,
    TP_FORMAT_GGUF = 2,
    TP_FORMAT_TPRESS = 255 /* only of a reader: the file opened is a container */
} tp_format;

const char *tp_format_name(tp_format f); /* "bytes", "safetensors", "gguf", "tpress" */


typedef struct tp_reader tp_reader; /* an open container or plain checkpoint */

/* A byte string of the file's own: not terminated, any bytes. Valid while the reader is open. */
typedef struct tp_text {
    const char *data;
    size_t size;
} tp_text;

typedef struct tp_file_info {
    tp_text path; /* as stored; of a plain checkpoint its base name */
    tp_format format;
    bool is_folder;
    uint16_t mode;
    uint64_t size;      /* bytes, restored */
    tp_text reason;     /* why a file that looked like a checkpoint is bytes; else empty */
    uint64_t digest[2]; /* XXH3-128, low half first; zero for a plain checkpoint */
    bool has_sha256;
    uint8_t sha256[32];
    size_t first_tensor, tensors; /* its tensors' numbers */
    size_t first_frame, frames;   /* containers only */
} tp_file_info;

#define TP_TENSOR_OPAQUE 1    /* stored as bytes: dtype unknown, or size and dtype x shape differ */
#define TP_TENSOR_TRUNCATED 2 /* the declared range ends beyond the file */

typedef struct tp_tensor_info {
    size_t file;
    tp_text name;
    tp_text dtype; /* the format's own name */
    const uint64_t *shape;
    size_t ndim;
    uint64_t offset; /* from the start of its file */
    uint64_t nbytes; /* declared */
    uint64_t stored_nbytes; /* its share of its frames by raw bytes, rounded down; 0 for duplicates and plain files */
    tp_method method;       /* TP_METHOD_NONE for plain files */
    unsigned flags;
} tp_tensor_info;

typedef struct tp_frame_entry { /* a logical frame of a container */
    uint64_t offset;            /* in the container */
    uint32_t stored_size, raw_size;
    tp_frame_codec codec;
    tp_method method;
    bool duplicate; /* stored earlier */
    uint64_t stored_hash[2], raw_hash[2];
} tp_frame_entry;

/*
 * Opens a container, safetensors, GGUF or other file. Reads headers or the index only. A damaged container is an
 * error; a damaged checkpoint is a file of bytes, with a reason. A folder that is no container must be opened file
 * by file (TP_UNSUPPORTED).
 * TP_IO, TP_NO_MEMORY, TP_CORRUPT, TP_TRUNCATED, TP_NEWER_VERSION.
 */
tp_status tp_open(const char *path, tp_reader **reader, tp_error *error);
/* The same for an open descriptor, which stays the caller's; `name` serves messages and format names. */
tp_status tp_open_fd(int fd, const char *name, tp_reader **reader, tp_error *error);

/*
 * Reads as pread does: up to `size` (at least 1) bytes at `offset` into dst. Returns how many; 0 where the data
 * ends; a negative errno on failure, for which *error (never NULL) may be filled too (tp_error_set): its text and
 * status are then what the failed function reports. A short read is continued, a failed one is not repeated.
 * It is called by any thread that reads, by several at once, and never asked beyond the size that was given.
 */
typedef int64_t (*tp_read_fn)(void *context, void *dst, size_t size, uint64_t offset, tp_error *error);

/*
 * The same for what a callback reads: a range reader, a member of an archive, memory. `size` bytes in all, which
 * must stay as they are while the reader is open; `context` stays the caller's. name: as above, NULL: "input".
 */
tp_status tp_open_callback(tp_read_fn read, void *context, uint64_t size, const char *name, tp_reader **reader,
                           tp_error *error);
/*
 * Not while another thread uses the reader. All other functions of a reader may be called from many threads at
 * once. After fork() the child may read on with the reader it has inherited, whatever other threads were doing
 * (nothing is ever locked), and closes it on its own; a callback must be up to that.
 */
void tp_close(tp_reader *reader);

tp_format tp_reader_format(const tp_reader *reader);
bool tp_reader_is_folder(const tp_reader *reader); /* the container holds a folder */
uint64_t tp_reader_size(const tp_reader *reader);  /* bytes of the file opened */
uint64_t tp_reader_original_size(const tp_reader *reader); /* bytes restored, all files */
void tp_reader_format_version(const tp_reader *reader, unsigned *major, unsigned *minor); /* containers */
size_t tp_reader_files(const tp_reader *reader);
size_t tp_reader_tensors(const tp_reader *reader);
size_t tp_reader_frames(const tp_reader *reader); /* containers; else 0 */

/* TP_INVALID_ARGUMENT if the number is out of range. */
tp_status tp_reader_file(const tp_reader *reader, size_t file, tp_file_info *info);
tp_status tp_reader_tensor(const tp_reader *reader, size_t tensor, tp_tensor_info *info);
tp_status tp_reader_frame(const tp_reader *reader, size_t frame, tp_frame_entry *entry);

/* The first tensor of this name (in file `file`, or in any for SIZE_MAX). TP_NOT_FOUND. */
tp_status tp_reader_find(const tp_reader *reader, size_t file, const char *name, size_t name_size,
                         size_t *tensor);

/*
 * Reads size bytes at `offset` of restored file `file` into dst; only the frames concerned are read and
 * decoded, with every check. TP_INVALID_ARGUMENT (beyond the file's end), TP_IO, TP_CORRUPT, ...
 */
tp_status tp_pread(tp_reader *reader, size_t file, void *dst, size_t size, uint64_t offset,
                   tp_error *error);
/*
 * A whole tensor: capacity at least nbytes. TP_TRUNCATED for a truncated one. Errors of this function and the next
 * two name file, tensor and, where there is one, the place.
 */
tp_status tp_read_tensor(tp_reader *reader, size_t tensor, void *dst, size_t capacity, tp_error *error);
/*
 * Rows first .. last - 1 of the slowest dimension (safetensors: the first, GGUF: the last). *size receives
 * the bytes; with dst NULL only that. TP_INVALID_ARGUMENT: out of range, no dimension, rows not whole bytes.
 */
tp_status tp_read_rows(tp_reader *reader, size_t tensor, uint64_t first, uint64_t last, void *dst,
                       size_t capacity, size_t *size, tp_error *error);
/*
 * A box: of dimension k (in the order of the tensor's shape) the elements first[k] .. last[k] - 1, for all ndim
 * dimensions, packed into dst in the tensor's own order. Only the frames concerned are read, each once. With
 * ndim 0 the one element. *size receives the bytes; with dst NULL only that. An empty range makes an empty box.
 * Where a dtype packs several elements into some bytes (F4, F6_*, quantised GGUF types), every piece of the
 * tensor that is contiguous in the box must consist of whole packs.
 * TP_INVALID_ARGUMENT: out of range, another ndim than the tensor's, not whole packs, an opaque tensor.
 * TP_UNSUPPORTED: a dtype of unknown size. TP_CORRUPT: the tensor's size is not that of dtype and shape. ...
 */
tp_status tp_read_box(tp_reader *reader, size_t tensor, const uint64_t *first, const uint64_t *last, size_t ndim,
                      void *dst, size_t capacity, size_t *size, tp_error *error);

/* --------------------------------------------------------------------------------- conversion level */

/* Progress: called from the calling thread about ten times a second and at the end. false cancels. */
typedef bool (*tp_progress_fn)(void *context, uint64_t done, uint64_t total);
/* One line for people about something stored differently than expected. */
typedef void (*tp_warning_fn)(void *context, const char *line);

typedef struct tp_options {
    tp_level level;         /* compress */
    tp_codec_choice codec;  /* compress */
    unsigned threads;       /* 0: as many as the process may use */
    bool force;             /* replace an existing output: a file, or an empty folder by a folder */
    bool sha256;            /* compress: store SHA-256 too */
    bool verify;            /* compress: decode every frame in memory and compare */
    bool dry_run;           /* compress: report sizes, write nothing; out_path may be NULL */
    bool direct;            /* compress, decompress, verify: read and write large files past the page cache, where the
                               system can do that; descriptors of the caller's are used as they are */
    uint64_t max_output;    /* decompress: largest restored size, 0: no limit */
    tp_progress_fn progress;
    void *progress_context;
    tp_warning_fn warning;
    void *warning_context;
} tp_options;

/* All defaults. */
void tp_options_init(tp_options *options);

typedef struct tp_report {
    uint64_t files; /* without the folders in a folder */
    uint64_t tensors, frames, duplicate_frames;
    uint64_t raw_bytes;    /* restored */
    uint64_t stored_bytes; /* the container */
} tp_report;

/*
 * Converts the file or folder in_path into a container at out_path. The output appears whole or not at all.
 *
 * Of a folder everything in it goes into one container: files, empty folders, permission bits, also what is
 * hidden. Links to files count as the files; a link to a folder or to nothing, a FIFO, a socket or a device is
 * an error (TP_IO), as is a folder that changes meanwhile.
 *
 * In place of a path a descriptor may be given: in_fd >= 0 (then in_path is its name in messages and, of a file,
 * in the container) and out_fd >= 0 (written in order, not synced; then out_path is its name in messages). A
 * regular file's descriptor is read from its position to its end, a pipe is copied into a temporary file first.
 * A program that writes to pipes or sockets must ignore SIGPIPE: a reader that has gone is then TP_IO, not the
 * program's death. options and report may be NULL.
 */
tp_status tp_compress_file(const char *in_path, int in_fd, const char *out_path, int out_fd,
                           const tp_options *options, tp_report *report, tp_error *error);

/*
 * Writes tensors from memory into a container that restores to a safetensors file: what tp_compress_file makes of
 * that file, byte for byte, without the file. One thread at a time; tp_writer_finish starts options->threads of
 * its own, and takes no more memory than a conversion.
 */
typedef struct tp_writer tp_writer;

/*
 * out_path, out_fd and options are those of tp_compress_file, and are only used by tp_writer_finish: until then
 * nothing is written. out_path is copied, options too (but not what they point to). name: of the restored file as
 * stored; NULL: the last part of out_path without ".tpress", or "model.safetensors" if there is no path.
 * TP_INVALID_ARGUMENT (no output, a name that cannot be stored), TP_NO_MEMORY.
 */
tp_status tp_writer_create(const char *out_path, int out_fd, const char *name, const tp_options *options,
                           tp_writer **writer, tp_error *error);
/* Frees the writer; without tp_writer_finish before it nothing has happened. */
void tp_writer_close(tp_writer *writer);

/* An entry of the file's __metadata__, both texts UTF-8. TP_INVALID_ARGUMENT (not UTF-8), TP_NO_MEMORY. */
tp_status tp_writer_metadata(tp_writer *writer, const char *key, size_t key_size, const char *value,
                             size_t value_size, tp_error *error);
/*
 * A tensor: name in UTF-8, dtype a name of safetensors ("BF16", ...), elements in row-major order and little-endian.
 * nbytes must be what shape and dtype say. `data` stays the caller's and must not change until tp_writer_finish
 * has returned; name, dtype and shape are copied. TP_INVALID_ARGUMENT, TP_NO_MEMORY.
 */
tp_status tp_writer_add(tp_writer *writer, const char *name, size_t name_size, const char *dtype,
                        const uint64_t *shape, size_t ndim, const void *data, uint64_t nbytes, tp_error *error);
/*
 * Writes all of it, once; the container appears whole or not at all. The restored file is laid out as the
 * safetensors library does it: dtypes from U64 down to BOOL, names in byte order, metadata by key, the header
 * padded to a multiple of 8. report may be NULL.
 * TP_INVALID_ARGUMENT (a name or key twice, finished before), TP_LIMIT (a header of more than 100,000,000 bytes,
 * which that library does not read), and what tp_compress_file returns.
 */
tp_status tp_writer_finish(tp_writer *writer, tp_report *report, tp_error *error);

/*
 * Restores the file or folder of a container; the same conventions. A folder needs out_path: it is built under a
 * temporary name and never replaces anything but, with options->force, an empty folder.
 */
tp_status tp_decompress_file(const char *in_path, int in_fd, const char *out_path, int out_fd,
                             const tp_options *options, tp_report *report, tp_error *error);

/*
 * Decodes everything and checks every hash; with `against` compares with that file byte for byte, or with that
 * folder: names, kinds, permission bits and contents. Goes on after damage: each damaged or differing tensor (or
 * file without tensors) is a line to options->warning.
 */
tp_status tp_verify_file(const char *in_path, int in_fd, const char *against, const tp_options *options,
                         tp_report *report, tp_error *error);

/* ------------------------------------------------------------------------------------- device level */

/*
 * Tensors are loaded onto a device as they are stored and decoded there: "cpu", "cuda" or "opencl", with ":N" for
 * another than the first device of a kind. Which kinds are built in and present is found at run time; docs/gpu.md
 * says what runs where. A device and its loaders are used by one thread at a time.
 */
typedef struct tp_device tp_device;

typedef struct tp_device_info {
    char name[32];         /* "cpu", "cuda:0", "opencl:1" */
    char description[320]; /* for people */
    const char *backend;   /* "cpu", "cuda", "opencl" */
    unsigned index;        /* N */
    uint64_t memory;       /* bytes, 0: not known */
} tp_device_info;

/* The devices present: at most `capacity` are described, *count receives how many there are. */
tp_status tp_device_list(tp_device_info *list, size_t capacity, size_t *count);
/* TP_INVALID_ARGUMENT: not a device's name. TP_UNSUPPORTED: no such device here. */
tp_status tp_device_open(const char *name, tp_device **device, tp_error *error);
void tp_device_close(tp_device *device); /* after its loaders */
void tp_device_describe(const tp_device *device, tp_device_info *info);
/* Runs every kernel on built-in patterns and compares with the CPU's. TP_MISMATCH, ... */
tp_status tp_device_self_test(tp_device *device, tp_error *error);

/* Memory of a device. */
typedef struct tp_device_range {
    void *memory;     /* opencl: a cl_mem; else NULL */
    uint64_t address; /* opencl: the offset in it; cpu: a pointer; cuda: a device pointer */
    uint64_t size;    /* bytes */
} tp_device_range;

/*
 * A device in the caller's OpenCL context: that of the cl_command_queue, which stays the caller's. Memory and
 * queues of one context mean nothing in another, so the caller's can be used only so. (On cuda the primary context
 * is used, which frameworks use too.) TP_UNSUPPORTED: no such device known here.
 */
tp_status tp_device_open_queue(void *queue, tp_device **device, tp_error *error);

/* -- loading files -- */

typedef struct tp_loader tp_loader;

typedef struct tp_load_options {
    unsigned threads; /* for reading and checking; 0: as many as the process may use */
    size_t staging;   /* bytes on the device that data passes through, and at most as many of pinned memory of the
                         host; 0: 64 MiB, and never less than 26 MiB unless less is loaded */
    uintptr_t stream; /* the caller's stream: what is loaded is written after all that was queued there before
                         tp_loader_run or the first tp_loader_next. cuda: a CUstream, also 1 (default) or 2 (of the
                         thread); opencl: a cl_command_queue. 0: none */
    tp_progress_fn progress;
    void *progress_context;
} tp_load_options;
void tp_load_options_init(tp_load_options *options);

/* options may be NULL. Nothing is allocated on the device before it is needed. */
tp_status tp_loader_create(tp_device *device, const tp_load_options *options, tp_loader **loader,
                           tp_error *error);
/*
 * Frees the tensors too, but those handed out by tp_loader_dlpack: their memory, and what is needed to free it,
 * lives until their deleters are called. So loader, device and readers may be closed in this order at any time.
 */
void tp_loader_close(tp_loader *loader);

/*
 * Choosing what is loaded, from as many readers as wanted, which stay the caller's and open until the loader is
 * closed. What is chosen is an *item*, numbered from 0 in the order of choosing: a tensor (again for the same one
 * the same item), or some rows of one. *item may be NULL.
 * TP_INVALID_ARGUMENT: no such tensor, or loading is under way. TP_TRUNCATED: the file ends before it.
 */
tp_status tp_loader_add(tp_loader *loader, tp_reader *reader, size_t tensor, size_t *item, tp_error *error);
/* The first tensor of that name. TP_NOT_FOUND. */
tp_status tp_loader_add_named(tp_loader *loader, tp_reader *reader, const char *name, size_t *item,
                              tp_error *error);
/*
 * All whose names match: * any bytes, ? any one, [a-c] one of these, [!a-c] none of them, a backslash before what is
 * meant as it is. *added receives how many match, *truncated how many of them the file ends before, which are left
 * out; both may be NULL.
 */
tp_status tp_loader_add_matching(tp_loader *loader, tp_reader *reader, const char *pattern, size_t *added,
                                 size_t *truncated, tp_error *error);
/*
 * Rows first .. last - 1 of the slowest dimension (safetensors: the first, GGUF: the last), as for a shard of tensor
 * parallelism: only the frames that hold them are read. Always an item of its own. TP_INVALID_ARGUMENT: out of
 * range, no dimension, rows not whole bytes.
 */
tp_status tp_loader_add_rows(tp_loader *loader, tp_reader *reader, size_t tensor, uint64_t first, uint64_t last,
                             size_t *item, tp_error *error);

/*
 * Where items go. By default into memory that the loader owns, each at a multiple of 256 and never overwritten,
 * moved or handed out twice. Or an item goes to the caller's memory: of at least its size, at any address, where a
 * multiple of 16 is faster (frames go to other places by way of staging memory).
 * TP_BUFFER_TOO_SMALL, TP_INVALID_ARGUMENT (loaded, or loading).
 */
tp_status tp_loader_place(tp_loader *loader, size_t item, const tp_device_range *where, tp_error *error);
/*
 * Or all items chosen so far that are not loaded and have no place go into one piece of memory, at multiples of 256
 * one after the other: tp_loader_arena_size says how large it is (0: no bytes, UINT64_MAX: beyond 64 bits),
 * tp_loader_use_arena gives it: the caller's, at a multiple of 256, or for NULL one allocation of the loader's own.
 */
uint64_t tp_loader_arena_size(const tp_loader *loader);
tp_status tp_loader_use_arena(tp_loader *loader, const tp_device_range *arena, tp_error *error);

/*
 * Loads what is chosen and not loaded. Each frame is read once, checked, decoded on the device (but what lz4 holds
 * is decoded by the host) and its decoded bytes checked there. More may be chosen and loaded afterwards. On an error
 * nothing that this call has allocated stays allocated, and its items can be chosen again; what was loaded before
 * stays. TP_IO, TP_NO_MEMORY, TP_CORRUPT, TP_CANCELLED, ...
 */
tp_status tp_loader_run(tp_loader *loader, tp_error *error);
/*
 * The same item by item, in the order in which they end in the files (readers in the order of their first items):
 * waits until the next one is complete and checked, while those after it are still read and decoded; that goes on
 * after the call. *item is SIZE_MAX when there are no more. After an error the items handed out stay.
 */
tp_status tp_loader_next(tp_loader *loader, size_t *item, tp_error *error);

typedef struct tp_load_item {
    tp_reader *reader;
    size_t tensor;
    bool whole;           /* else rows first .. last - 1 */
    uint64_t first, last;
    uint64_t nbytes;
    bool loaded;
    tp_device_range where; /* once it is loaded; of no bytes: nowhere */
} tp_load_item;

size_t tp_loader_items(const tp_loader *loader); /* chosen so far */
tp_status tp_loader_item(const tp_loader *loader, size_t item, tp_load_item *info); /* TP_INVALID_ARGUMENT */
/* Copies a loaded item back: capacity at least nbytes. TP_NOT_FOUND: not loaded. */
tp_status tp_loader_read(tp_loader *loader, size_t item, void *dst, size_t capacity, tp_error *error);
/*
 * Reads the files again, decodes them on the CPU with every checksum, copies all loaded items back and compares.
 * TP_MISMATCH names the tensor.
 */
tp_status tp_loader_verify(tp_loader *loader, tp_error *error);

/*
 * A loaded item for other libraries (torch.from_dlpack, ...), in memory that the loader owns; the item stays valid
 * until the loader is closed *and* the tensor's deleter has been called, which may be in any order and thread. The
 * structures are those of dlpack.h: the second is of version 1.1, the first is what came before versions. Complete
 * when handed out: no stream needs to wait. as_bytes, or a dtype that DLPack has no code for (GGUF's blocks, 4 and 6
 * bits): one dimension of uint8. Else the dimensions are the slowest first, of GGUF too.
 * TP_INVALID_ARGUMENT: not loaded, or in the caller's memory. TP_NO_MEMORY.
 */
struct DLManagedTensor;
struct DLManagedTensorVersioned;
tp_status tp_loader_dlpack(tp_loader *loader, size_t item, bool as_bytes, struct DLManagedTensor **tensor,
                           tp_error *error);
tp_status tp_loader_dlpack_versioned(tp_loader *loader, size_t item, bool as_bytes,
                                     struct DLManagedTensorVersioned **tensor, tp_error *error);

typedef struct tp_load_stats {
    uint64_t tensors;      /* items loaded */
    uint64_t raw_bytes;    /* of them */
    uint64_t stored_bytes; /* read from the files */
    /* Bytes of the tensors by where they were decoded; those of a plain checkpoint are in neither. */
    uint64_t decoded_on_device_bytes, decoded_on_host_bytes;
    /* Waiting for frames to be read and checked; for decoding, and copying to the device; each as far as the other
       does not hide it. total_s: spent in tp_loader_run and tp_loader_next. */
    double read_s, decode_s, total_s;
} tp_load_stats;
void tp_loader_stats(const tp_loader *loader, tp_load_stats *stats);

/* -- decoding frames that are in memory already -- */

/*
 * For frameworks that read and allocate themselves. These calls allocate no memory of the device, make no context and
 * wait for nothing: all that is needed on the device is given as addresses, and everything is queued on the caller's
 * stream. What is read from the frames is checked first, as in tp_frame_check; where the decoded bytes go wrong, that
 * is known when the stream has come past: then, before anything of them is used, tp_device_decode_check must be
 * called.
 */
#define TP_DEVICE_SLACK 4096 /* bytes after a stored frame that kernels may read, of any content */

typedef struct tp_device_frame {
    /* The frame in host memory; or, if it is on the device too, holds no lz4 and is not of codec df11, at least its
       head (header, tables and descriptors: tp_frame_head_size). It must stay as it is until tp_device_decode_check. */
    const void *host;
    size_t host_size;
    /* The whole frame on the device at a multiple of 128, size including TP_DEVICE_SLACK. Size 0: it is not there, and
       copied from host memory, through the host's scratch. */
    tp_device_range stored;
    tp_device_range output; /* at a multiple of 16, at least the frame's raw_size; not the frame's own memory */
} tp_device_frame;

/* The head's size, from a frame's first 128 bytes. TP_CORRUPT: these are none. */
tp_status tp_frame_head_size(const void *header, size_t *size, tp_error *error);

typedef struct tp_device_work {
    uintptr_t stream;        /* cuda: a CUstream; opencl: a cl_command_queue of the device's context; cpu: 0 */
    tp_device_range scratch; /* device memory at a multiple of 256 */
    void *host;              /* host memory at a multiple of 64; if it is not pinned, copies may wait */
    size_t host_size;
} tp_device_work;

/* Bytes of scratch on the device and of the host that tp_device_decode needs for these frames at once. */
tp_status tp_device_decode_size(tp_device *device, const tp_device_frame *frames, size_t count,
                                size_t *scratch_size, size_t *host_size, tp_error *error);
/*
 * Queues the decoding of all of them. Until the stream has come past, nothing of frames, scratch and outputs may be
 * changed or freed. An error that comes after something was queued leaves the stream in use: wait for it before
 * freeing anything. On the cpu it is done when this returns.
 * TP_CORRUPT, TP_UNSUPPORTED, TP_BUFFER_TOO_SMALL, TP_INVALID_ARGUMENT (alignment), TP_IO.
 */
tp_status tp_device_decode(tp_device *device, const tp_device_frame *frames, size_t count,
                           const tp_device_work *work, tp_error *error);
/*
 * After the stream has come past it: whether all frames were decoded to the bytes that they were made from. On an
 * error *failed (may be NULL) receives the number of the first that was not, and no output may be used.
 * TP_CORRUPT; TP_IO: a kernel has not run, or the stream has not come past.
 */
tp_status tp_device_decode_check(tp_device *device, const tp_device_frame *frames, size_t count,
                                 const tp_device_work *work, size_t *failed, tp_error *error);

/* ------------------------------------------------------------------------------------------ DFloat11 */

typedef struct tp_df11_report {
    uint64_t units, left_units; /* coded; left as they are, since they cannot be */
    uint64_t weights;           /* elements in units */
    uint64_t tensors;           /* of the ordinary checkpoint */
    uint64_t raw_bytes;         /* of the ordinary checkpoint's tensors */
    uint64_t stored_bytes;      /* of the DFloat11 checkpoint's tensors */
} tp_df11_report;

/*
 * Converts a safetensors file, or a folder with some, into a DFloat11 checkpoint: the folder out_path, which
 * appears whole or not at all (docs/dfloat11.md). pattern_dict: a JSON file that sets the units, or NULL. Of the
 * options count threads, force, verify (every unit is decoded and compared), progress and warning. Memory: less
 * than the largest unit, and 10 MiB a thread. report may be NULL.
 */
tp_status tp_convert_to_df11(const char *in_path, const char *out_path, const char *pattern_dict,
                             const tp_options *options, tp_df11_report *report, tp_error *error);
/*
 * And back. The shapes, names and files of the weights come from `reference` (a safetensors file or folder, or
 * NULL), else from what tensorpress has put into the checkpoint, else the weights become one-dimensional, with a
 * warning. TP_CORRUPT where damage can be seen (the format has no checksums).
 */
tp_status tp_convert_from_df11(const char *in_path, const char *out_path, const char *pattern_dict,
                               const char *reference, const tp_options *options, tp_df11_report *report,
                               tp_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
