"""The Kubernetes objects that `model.objects` gathers, by what they are about."""
