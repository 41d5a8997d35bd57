import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "site"))
lib = torch.library.Library("torchvision", "DEF")
for schema in ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor", "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor", "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)", "_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor", "ps_roi_align(Tensor a) -> Tensor", "_ps_roi_align_backward(Tensor a) -> Tensor", "ps_roi_pool(Tensor a) -> Tensor", "_ps_roi_pool_backward(Tensor a) -> Tensor", "deform_conv2d(Tensor a) -> Tensor", "_deform_conv2d_backward(Tensor a) -> Tensor"):
    lib.define(schema)
