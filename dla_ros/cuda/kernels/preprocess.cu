// An image of one encoding becomes the network's input tensor, in its layout, in one pass: convert
// to 8 bit color, resize, normalize, quantize, pad. One thread makes one pixel of the network.
// It does what preprocess.py preprocess_reference does, operation for operation, so that both
// agree to the bit; compile without fused multiply-add.
//
// FAMILY   0 color, 1 mono, 2 bayer, 3 yuv422, 4 semiplanar (image.py)
// SAMPLE   bytes of a sample, SWAP whether they are in the other order
// CHANNELS samples per pixel; FIRST, SECOND, THIRD what the encoding's `order` says of them:
//          positions of r, g, b (color), of the first y, u, v (yuv422), of u, v (semiplanar);
// PATTERN  the bayer pattern's four sites, two bits each: 0 r, 1 g, 2 b
// HALVED   whether a semiplanar image has one chroma sample for 2x2 pixels
// OUTPUT   0 rgb, 1 bgr, 2 mono
// AREA     0 linear, 1 mean over the area that a pixel covers
// LANES    channels that the tensor stores next to each other

typedef unsigned char Byte;

#define OUTPUTS (OUTPUT == 2 ? 1 : 3)

struct Image {
  const Byte* data;
  int width, height, step;
};

struct Color {
  int r, g, b;
};

__device__ int sample(const Image& image, int row, int index) {
  const Byte* at = image.data + (long long)row * image.step + index * SAMPLE;
#if SAMPLE == 1
  return *at;
#elif SWAP
  return at[0] << 8 | at[1];
#else
  return at[0] | at[1] << 8;
#endif
}

__device__ int eight_bits(int value) { return SAMPLE == 1 ? value : (value + 128) / 257; }

__device__ int clamp(int value, int least, int most) {
  return value < least ? least : value > most ? most : value;
}

__device__ int saturated(int value) { return clamp(value, 0, 255); }

// BT.601, limited range, in 1/2^20.
__device__ Color from_yuv(int y, int u, int v) {
  const int luma = (y > 16 ? y - 16 : 0) * 1220542 + (1 << 19);
  const int cu = u - 128, cv = v - 128;
  return {saturated((luma + 1673527 * cv) >> 20),
          saturated((luma - 852492 * cv - 409993 * cu) >> 20),
          saturated((luma + 2116026 * cu) >> 20)};
}

// Mirrors without repeating the edge; a single row or column repeats itself.
__device__ int mirrored(int i, int n) {
  if (n == 1) return 0;
  return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i;
}

#if FAMILY == 2
__device__ Color demosaiced(const Image& image, int x, int y) {
  if (image.height >= 3) y = clamp(y, 1, image.height - 2);
  if (image.width >= 3) x = clamp(x, 1, image.width - 2);
  auto at = [&](int dx, int dy) {
    return sample(image, mirrored(y + dy, image.height), mirrored(x + dx, image.width));
  };
  auto color_of = [](int sy, int sx) { return PATTERN >> 2 * (2 * (sy & 1) + (sx & 1)) & 3; };
  const int site = color_of(y, x), beside = color_of(y, x + 1);
  int values[3];
  values[site] = at(0, 0);
  const int horizontal = at(-1, 0) + at(1, 0), vertical = at(0, -1) + at(0, 1);
  if (site == 1) {
    values[beside] = (horizontal + 1) >> 1;
    values[2 - beside] = (vertical + 1) >> 1;
  } else {
    values[1] = (horizontal + vertical + 2) >> 2;
    values[2 - site] = (at(-1, -1) + at(1, -1) + at(-1, 1) + at(1, 1) + 2) >> 2;
  }
  return {eight_bits(values[0]), eight_bits(values[1]), eight_bits(values[2])};
}
#endif

__device__ Color color_at(const Image& image, int x, int y) {
#if FAMILY == 0
  const int first = x * CHANNELS;
  return {eight_bits(sample(image, y, first + FIRST)), eight_bits(sample(image, y, first + SECOND)),
          eight_bits(sample(image, y, first + THIRD))};
#elif FAMILY == 1
  const int gray = eight_bits(sample(image, y, x));
  return {gray, gray, gray};
#elif FAMILY == 2
  return demosaiced(image, x, y);
#elif FAMILY == 3
  const int pair = x / 2 * 4;
  return from_yuv(sample(image, y, pair + FIRST + 2 * (x & 1)), sample(image, y, pair + SECOND),
                  sample(image, y, pair + THIRD));
#else
  const Byte* chroma = image.data + (long long)image.step * image.height +
                       (HALVED ? (long long)(y / 2) * image.step + x / 2 * 2
                               : 2LL * y * image.step + 2 * x);
  return from_yuv(sample(image, y, x), chroma[FIRST], chroma[SECOND]);
#endif
}

// The channels that the network wants, 0 to 255.
__device__ void channels_at(const Image& image, int x, int y, int* out) {
  const Color color = color_at(image, x, y);
#if OUTPUT == 0
  out[0] = color.r;
  out[1] = color.g;
  out[2] = color.b;
#elif OUTPUT == 1
  out[0] = color.b;
  out[1] = color.g;
  out[2] = color.r;
#elif FAMILY == 1
  out[0] = color.r;
#else
  out[0] = (9798 * color.r + 19235 * color.g + 3735 * color.b + (1 << 14)) >> 15;
#endif
}

// The two source pixels of n that a target position lies between, and their weights in 1/2048.
struct Between {
  int low, high, low_weight, high_weight;
};

__device__ Between between(int position, int n, double ratio, bool one_at_edges) {
  const float center = (float)((position + 0.5) * ratio - 0.5);
  const int below = (int)floorf(center);
  float weight = center - (float)below;
  if (one_at_edges && (below < 0 || below >= n - 1)) weight = 0.0f;
  return {clamp(below, 0, n - 1), clamp(below + 1, 0, n - 1),
          (int)rintf((1.0f - weight) * 2048.0f), (int)rintf(weight * 2048.0f)};
}

struct Rect {
  int x, y, width, height;
};

// What OpenCV's INTER_LINEAR does with 8 bit images, to the bit.
__device__ void linear(const Image& image, const Rect& source, double ratio_x, double ratio_y,
                       int x, int y, int* out) {
  const Between across = between(x, source.width, ratio_x, true);
  const Between down = between(y, source.height, ratio_y, false);
  int a[3], b[3], c[3], d[3];
  channels_at(image, source.x + across.low, source.y + down.low, a);
  channels_at(image, source.x + across.high, source.y + down.low, b);
  channels_at(image, source.x + across.low, source.y + down.high, c);
  channels_at(image, source.x + across.high, source.y + down.high, d);
  for (int k = 0; k < OUTPUTS; ++k) {
    const int top = (a[k] * across.low_weight + b[k] * across.high_weight) >> 4;
    const int bottom = (c[k] * across.low_weight + d[k] * across.high_weight) >> 4;
    out[k] = (((top * down.low_weight) >> 16) + ((bottom * down.high_weight) >> 16) + 2) >> 2;
  }
}

// Lengths in 1/target of a source pixel.
__device__ void area(const Image& image, const Rect& source, const Rect& target, int x, int y,
                     int* out) {
  const int left = x * source.width, right = left + source.width;
  const int top = y * source.height, bottom = top + source.height;
  float sums[3] = {0.0f, 0.0f, 0.0f};
  for (int sy = top / target.height; sy * target.height < bottom; ++sy) {
    const int high = min(bottom, (sy + 1) * target.height) - max(top, sy * target.height);
    for (int sx = left / target.width; sx * target.width < right; ++sx) {
      const int wide = min(right, (sx + 1) * target.width) - max(left, sx * target.width);
      int values[3];
      channels_at(image, source.x + sx, source.y + sy, values);
      for (int k = 0; k < OUTPUTS; ++k) sums[k] += (float)(wide * high) * (float)values[k];
    }
  }
  const float whole = (float)source.width * (float)source.height;
  for (int k = 0; k < OUTPUTS; ++k) out[k] = (int)floorf(sums[k] / whole + 0.5f);
}

#if LANES > 1
// All lanes of a pixel at once; those without a channel are 0.
struct alignas(LANES * sizeof(Element) > 16 ? 16 : LANES * sizeof(Element)) Lanes {
  Element values[LANES];
};
#endif

// What the network gets for a channel's value of 0 to 255.
__device__ Element normalized(int value, float gain, float bias, float quantum) {
  const float real = (float)value * gain + bias;
  return to_element(ELEMENT < 2 ? real : real / quantum);
}

// Strides of the tensor in elements; ratios are source pixels per target pixel; `quantum` is what an
// element of 1 stands for.
extern "C" __global__ void preprocess(const Byte* data, Element* tensor, int width, int height,
                                      int step, int source_x, int source_y, int source_width,
                                      int source_height, int target_x, int target_y,
                                      int target_width, int target_height, int network_width,
                                      int network_height, int group_stride, int row_stride,
                                      int border, double ratio_x, double ratio_y, float gain_0,
                                      float gain_1, float gain_2, float bias_0, float bias_1,
                                      float bias_2, float quantum) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= network_width || y >= network_height) return;
  const Image image = {data, width, height, step};
  const Rect source = {source_x, source_y, source_width, source_height};
  const Rect target = {target_x, target_y, target_width, target_height};
  const int tx = x - target.x, ty = y - target.y;
  int pixel[3] = {border, border, border};
  if (tx >= 0 && ty >= 0 && tx < target.width && ty < target.height) {
#if AREA
    area(image, source, target, tx, ty, pixel);
#else
    linear(image, source, ratio_x, ratio_y, tx, ty, pixel);
#endif
  }
  const float gain[3] = {gain_0, gain_1, gain_2}, bias[3] = {bias_0, bias_1, bias_2};
  Element* at = tensor + (long long)y * row_stride;
#if LANES > 1
  Lanes lanes = {};
  for (int k = 0; k < OUTPUTS; ++k) {
    lanes.values[k] = normalized(pixel[k], gain[k], bias[k], quantum);
  }
  *reinterpret_cast<Lanes*>(at + x * LANES) = lanes;
#else
  for (int k = 0; k < OUTPUTS; ++k) {
    at[(long long)k * group_stride + x] = normalized(pixel[k], gain[k], bias[k], quantum);
  }
#endif
}
