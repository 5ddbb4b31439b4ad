// Selects the boxes of one detection head whose score reaches the threshold, straight from the
// tensor in the DLA's layout. It does what decoders/base.py select_candidates does.
//
// LANES      channels that the tensor stores next to each other
// CLASSES    class scores of a box
// OBJECTNESS whether a box has one, between its 4 values and its class scores
// LOGITS     whether scores have yet to go through a sigmoid

__device__ float sigmoid(float x) { return 0.5f * (1.0f + tanhf(0.5f * x)); }

__device__ float probability(float score) { return LOGITS ? sigmoid(score) : score; }

struct Candidate {
  int head, index, class_id;  // `index` counts anchor, row, column.
  float score;
  float box[4];
};

struct Found {
  int count, unused[7];
  Candidate candidates[1];
};

// One thread for each anchor of each cell. Strides in elements; `least` is what a threshold of
// `confidence` asks of a score as the network wrote it.
extern "C" __global__ void select_candidates(const Element* tensor, Found* found, int head,
                                             int anchors, int h, int w, int group_stride,
                                             int row_stride, int pixel_stride, float scale,
                                             float least, float confidence) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= anchors * h * w) return;
  const int anchor = index / (h * w), row = index / w % h, column = index % w;
  const Element* cell = tensor + row * row_stride + column * pixel_stride;
  const int first = anchor * (4 + OBJECTNESS + CLASSES);
  auto value = [&](int k) {
    const int channel = first + k;
    return to_float(cell[channel / LANES * group_stride + channel % LANES]) * scale;
  };
#if OBJECTNESS
  const float objectness = value(4);
  if (!(objectness >= least)) return;
#endif
  int class_id = 0;
  float best = value(4 + OBJECTNESS);
  // No way out of the loop, so that its loads can be under way together. A NaN stays the best, and
  // the score then is none.
#pragma unroll 16
  for (int k = 1; k < CLASSES; ++k) {
    const float other = value(4 + OBJECTNESS + k);
    if (best == best && !(other <= best)) {
      best = other;
      class_id = k;
    }
  }
  if (!(best >= least)) return;
  float score = probability(best);
#if OBJECTNESS
  score *= probability(objectness);
#endif
  if (!(score >= confidence) || score > 3.0e38f) return;
  Candidate& candidate = found->candidates[atomicAdd(&found->count, 1)];
  candidate.head = head;
  candidate.index = index;
  candidate.class_id = class_id;
  candidate.score = score;
  for (int k = 0; k < 4; ++k) candidate.box[k] = value(k);
}
