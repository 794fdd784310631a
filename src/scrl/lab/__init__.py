"""Offline work on stored rollouts: what would a method make of them?"""
