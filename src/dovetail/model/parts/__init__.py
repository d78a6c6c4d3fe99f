"""The Kubernetes objects that `model.objects` exports, by subject."""
