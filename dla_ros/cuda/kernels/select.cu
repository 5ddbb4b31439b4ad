// Selects the boxes of one detection head whose score reaches the threshold, straight from the
// tensor in the DLA's layout. It does what decoders/base.py select_candidates does.

__device__ float sigmoid(float x) { return 0.5f * (1.0f + tanhf(0.5f * x)); }

struct Candidate {
  int head, index, class_id;  // `index` counts anchor, row, column.
  float score;
  float box[4];
};

struct Found {
  int count, unused[7];
  Candidate candidates[1];
};

// One thread for each anchor of each cell. Strides in elements.
extern "C" __global__ void select_candidates(const Element* tensor, Found* found, int head,
                                             int anchors, int classes, int h, int w, int lanes,
                                             int group_stride, int row_stride, int pixel_stride,
                                             float scale, int logits, float least,
                                             float confidence) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= anchors * h * w) return;
  const int anchor = index / (h * w), row = index / w % h, column = index % w;
  const Element* cell = tensor + row * row_stride + column * pixel_stride;
  const int first = anchor * (5 + classes);
  auto value = [&](int k) {
    const int channel = first + k;
    return to_float(cell[channel / lanes * group_stride + channel % lanes]) * scale;
  };
  const float objectness = value(4);
  if (!(objectness >= least)) return;
  int class_id = 0;
  float best = value(5);
  // A NaN stays the best, and the score then is none.
  for (int k = 1; k < classes && best == best; ++k) {
    const float other = value(5 + k);
    if (!(other <= best)) {
      best = other;
      class_id = k;
    }
  }
  const float score = logits ? sigmoid(objectness) * sigmoid(best) : objectness * best;
  if (!(score >= confidence) || score > 3.0e38f) return;
  Candidate& candidate = found->candidates[atomicAdd(&found->count, 1)];
  candidate.head = head;
  candidate.index = index;
  candidate.class_id = class_id;
  candidate.score = score;
  for (int k = 0; k < 4; ++k) candidate.box[k] = value(k);
}
