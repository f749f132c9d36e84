/* The least program: codes a buffer, decodes it, compares. */
#include <string.h>

#include <tensorpress.h>

int main(void)
{
    unsigned char raw[4096], frame[8192], back[4096];
    tp_encoder *encoder = NULL;
    tp_decoder *decoder = NULL;
    size_t size = 0, raw_size = 0;
    for (size_t i = 0; i < sizeof raw; i++) raw[i] = (unsigned char)(i * i >> 5);
    if (tp_abi_version() != TP_ABI_VERSION || tp_encode_bound(sizeof raw) > sizeof frame) return 1;
    if (tp_encoder_create(&encoder) != TP_OK || tp_decoder_create(&decoder) != TP_OK) return 2;
    const tp_status encoded = tp_encode(encoder, TP_CLASS_BF16, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, raw,
                                        sizeof raw, frame, sizeof frame, &size);
    const tp_status decoded =
        encoded == TP_OK ? tp_decode(decoder, frame, size, back, sizeof back, &raw_size, NULL) : encoded;
    tp_encoder_destroy(encoder);
    tp_decoder_destroy(decoder);
    return decoded == TP_OK && raw_size == sizeof raw && memcmp(raw, back, sizeof raw) == 0 ? 0 : 3;
}
