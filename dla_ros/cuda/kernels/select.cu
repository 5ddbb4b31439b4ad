// Selects the boxes of one detection head whose score reaches the threshold, straight from the
// tensors in the DLA's layout. It does what decoders/heads.py select_candidates does.
//
// LANES       channels that the score tensor stores next to each other
// AXIS        the axis of that tensor, [n, c, h, w], along which scores lie
// CLASSES     class scores of a box, the background among them
// BACKGROUND  whether the first of them stands for no object
// ACTIVATION  what scores have yet to go through: 0 none, 1 sigmoid, 2 softmax
// OBJECTNESS  whether a box has one; it is the first source then
// POWERS      whether the factors of a score have exponents
// PEAK        whether no neighbor of a candidate's class may exceed it
// MULTI_LABEL whether each class that passes is a candidate
// VALUES      values of a candidate

__device__ float sigmoid(float x) { return 0.5f * (1.0f + tanhf(0.5f * x)); }

__device__ bool finite(float x) { return x - x == 0.0f; }

struct Candidate {
  int head, index, class_id;  // `index` counts anchor, row, column.
  float score;
  float values[VALUES];
};

struct Found {
  int count, not_finite, unused[6];
  Candidate candidates[1];
};

// A span of a head. Strides in elements.
struct Source {
  unsigned long long data;
  int element, lanes, axis, group_stride, row_stride, pixel_stride, first, step, count, bins;
  float scale;
  int unused;
};

__device__ float read(const Source& source, int anchor, int row, int column, int k) {
  const int value = source.first + anchor * source.step + k;
  const int c = source.axis == 1 ? value : row;
  const int y = source.axis == 1 ? row : source.axis == 2 ? value : column;
  const int x = source.axis == 3 ? value : column;
  const long long place = (long long)(c / source.lanes) * source.group_stride +
                          c % source.lanes + (long long)y * source.row_stride +
                          (long long)x * source.pixel_stride;
  return load((const void*)source.data, source.element, place) * source.scale;
}

// The mean of a distribution over `bins` logits.
__device__ float mean(const Source& source, int anchor, int row, int column, int first) {
  float most = read(source, anchor, row, column, first);
  for (int j = 1; j < source.bins; ++j)
    most = fmaxf(most, read(source, anchor, row, column, first + j));
  float sum = 0.0f, weighted = 0.0f;
  for (int j = 0; j < source.bins; ++j) {
    const float power = expf(read(source, anchor, row, column, first + j) - most);
    sum += power;
    weighted += power * j;
  }
  return weighted / sum;
}

// One thread for each anchor of each cell. Strides in elements; `least` and `least_objectness` are
// what a threshold of `confidence` asks of the factors as the network wrote them.
extern "C" __global__ void select_candidates(
    const Element* tensor, Found* found, const Source* sources, int source_count, int head,
    int anchors, int rows, int columns, int first, int step, int group_stride, int row_stride,
    int pixel_stride, float scale, float least, float least_objectness, float confidence,
    float class_power, float objectness_power) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= anchors * rows * columns) return;
  const int anchor = index / (rows * columns), row = index / columns % rows;
  const int column = index % columns;
  auto cell = [&](int y, int x) {
#if AXIS == 1
    return tensor + y * row_stride + x * pixel_stride;
#elif AXIS == 2
    return tensor + y / LANES * group_stride + y % LANES + x * pixel_stride;
#else
    return tensor + y / LANES * group_stride + y % LANES + x * row_stride;
#endif
  };
  auto value = [&](const Element* at, int k) {
    const int place = first + anchor * step + k;
#if AXIS == 1
    return to_float(at[place / LANES * group_stride + place % LANES]) * scale;
#elif AXIS == 2
    return to_float(at[place * row_stride]) * scale;
#else
    return to_float(at[place * pixel_stride]) * scale;
#endif
  };
#if OBJECTNESS
  const float objectness = read(sources[0], anchor, row, column, 0);
  if (objectness < least_objectness) return;
#else
  const float objectness = 0.0f;
#endif
  const Element* mine = cell(row, column);
  int class_id = BACKGROUND;
  float best = value(mine, BACKGROUND);
  // No way out of the loop, so that its loads can be under way together. A NaN stays the best.
#pragma unroll 16
  for (int k = 1 + BACKGROUND; k < CLASSES; ++k) {
    const float other = value(mine, k);
    if (best == best && !(other <= best)) {
      best = other;
      class_id = k;
    }
  }
  if (best < least) return;
#if ACTIVATION == 2
  float most = best, sum = 0.0f;
  for (int k = 0; k < BACKGROUND; ++k) {
    const float other = value(mine, k);
    if (most == most && !(other <= most)) most = other;
  }
  for (int k = 0; k < CLASSES; ++k) sum += expf(value(mine, k) - most);
  if (!finite(sum) || !finite(objectness)) {
#else
  if (!finite(best + objectness)) {
#endif
    atomicAdd(&found->not_finite, 1);
    return;
  }
  auto probability = [&](float x) {
#if ACTIVATION == 2
    float p = expf(x - most) / sum;
#elif ACTIVATION == 1
    float p = sigmoid(x);
#else
    float p = x;
#endif
#if POWERS
    if (class_power != 1.0f) p = powf(p, class_power);
#endif
    return p;
  };
  float factor = 1.0f;
#if OBJECTNESS
  factor = ACTIVATION ? sigmoid(objectness) : objectness;
#if POWERS
  if (objectness_power != 1.0f) factor = powf(factor, objectness_power);
#endif
#endif
  auto add = [&](int k, float score) {
#if PEAK
    for (int y = max(row - 1, 0); y <= min(row + 1, rows - 1); ++y)
      for (int x = max(column - 1, 0); x <= min(column + 1, columns - 1); ++x)
        if (value(cell(y, x), k) > value(mine, k)) return;
#endif
    Candidate& candidate = found->candidates[atomicAdd(&found->count, 1)];
    candidate.head = head;
    candidate.index = index;
    candidate.class_id = k - BACKGROUND;
    candidate.score = score;
    int filled = 0;
    for (int i = OBJECTNESS; i < source_count; ++i) {
      const Source& source = sources[i];
      for (int j = 0; j < source.count; ++j)
        candidate.values[filled++] = source.bins > 1
                                         ? mean(source, anchor, row, column, j * source.bins)
                                         : read(source, anchor, row, column, j);
    }
  };
#if MULTI_LABEL
  for (int k = BACKGROUND; k < CLASSES; ++k) {
    const float raw = value(mine, k), score = probability(raw) * factor;
    if (raw >= least && score >= confidence) add(k, score);
  }
#else
  const float score = probability(best) * factor;
  if (score >= confidence) add(class_id, score);
#endif
}
